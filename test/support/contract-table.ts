import type { Reporter, TestModule } from 'vitest/node'

/** The suites that run on every server. */
const CONTRACT = /\/(frameworks\/contract|http\/[^/]+)\.test\.ts$/

interface Cell {
  passed: number
  run: number
}

/** Prints the results of the HTTP contract: a row for each behaviour, a column for each adapter. */
export default class ContractTable implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const rows = new Map<string, Map<string, Cell>>()
    const adapters = new Set<string>()
    for (const module of modules) {
      if (!CONTRACT.test(module.moduleId)) continue
      for (const test of module.children.allTests()) {
        const [, adapter, behaviour = 'other requests'] =
          /^on '?([^' ]+)'? > (?:(.+?) > )?/.exec(test.fullName) ?? []
        const { state } = test.result()
        if (adapter === undefined || state === 'skipped' || state === 'pending') continue
        adapters.add(adapter)
        const row = rows.get(behaviour) ?? new Map<string, Cell>()
        const cell = row.get(adapter) ?? { passed: 0, run: 0 }
        cell.run++
        if (state === 'passed') cell.passed++
        rows.set(behaviour, row.set(adapter, cell))
      }
    }
    // A test that runs on one server only covers code that all servers share.
    const contract = [...rows].filter(([, row]) => row.size > 1)
    if (contract.length === 0) return
    const width = Math.max(...contract.map(([behaviour]) => behaviour.length)) + 2
    const print = (first: string, rest: readonly string[]) =>
      console.log(first.padEnd(width) + rest.map(text => text.padStart(10)).join(''))
    console.log('\nThe HTTP contract, tests passed:')
    print('', [...adapters])
    for (const [behaviour, row] of contract)
      print(
        behaviour,
        [...adapters].map(adapter => textOf(row.get(adapter))),
      )
  }
}

function textOf({ passed, run }: Cell = { passed: 0, run: 0 }): string {
  return passed === run ? String(run) : `${passed} of ${run}`
}
