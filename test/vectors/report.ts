import type { Case, Trace } from './traces.js'

/** What was replayed of each file, and what was not. */
export class Report {
  readonly #files = new Map<string, { replayed: number; readonly total: number; readonly left: string[] }>()
  readonly #remarks: string[] = []

  file({ file, cases }: Trace): void {
    const total = cases.reduce((sum, { steps }) => sum + steps.length, 0)
    this.#files.set(file, { replayed: 0, total, left: [] })
  }

  replayed({ file }: Trace): void {
    const line = this.#files.get(file)
    if (line !== undefined) line.replayed++
  }

  left({ file }: Trace, { name, steps }: Case, left: readonly number[], reason: string): void {
    const which =
      left.length === steps.length
        ? `all ${steps.length} steps`
        : `steps ${left.map(step => `${step} ${steps[step]?.op}`).join(', ')}`
    this.#files.get(file)?.left.push(`${name}, ${which}: ${reason}`)
  }

  remark(text: string): void {
    this.#remarks.push(text)
  }

  toString(): string {
    const files = [...this.#files].map(([file, { replayed, total, left }]) =>
      [`${file}: ${replayed} of ${total} steps replayed`, ...left.map(line => `  not ${line}`)].join('\n'),
    )
    return ['Golden traces (steps are counted from 0):', ...files, ...this.#remarks].join('\n')
  }
}
