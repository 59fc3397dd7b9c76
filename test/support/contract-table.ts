import type { Reporter, TestModule } from 'vitest/node'

/** Prints what the HTTP contract found: a row for each behaviour, a column for each adapter. */
export default class ContractTable implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const cells = new Map<string, Map<string, { passed: number; total: number }>>()
    const adapters = new Set<string>()
    for (const module of modules) {
      for (const test of module.children.allTests()) {
        const [, adapter, behaviour] = /^on '?([^' ]+)'? > (?:(.+?) > )?/.exec(test.fullName) ?? []
        if (adapter === undefined) continue
        adapters.add(adapter)
        const row = behaviour ?? 'a request that may be held'
        const columns = cells.get(row) ?? new Map()
        const cell = columns.get(adapter) ?? { passed: 0, total: 0 }
        cell.total++
        if (test.result().state === 'passed') cell.passed++
        cells.set(row, columns.set(adapter, cell))
      }
    }
    if (cells.size === 0) return
    const width = Math.max(...[...cells.keys()].map(row => row.length)) + 2
    const line = (first: string, rest: readonly string[]) =>
      console.log(first.padEnd(width) + rest.map(text => text.padStart(10)).join(''))
    console.log('\nThe HTTP contract, tests passed:')
    line('', [...adapters])
    for (const [row, columns] of cells)
      line(
        row,
        [...adapters].map(adapter => {
          const { passed, total } = columns.get(adapter) ?? { passed: 0, total: 0 }
          return passed === total ? String(total) : `${passed} of ${total}`
        }),
      )
  }
}
