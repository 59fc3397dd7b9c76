import type { LeftOut } from './replay.js'
import type { Case, Trace } from './traces.js'

/** Which steps of each file were replayed, and which were not. */
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

  left({ file }: Trace, { name, steps }: Case, left: readonly LeftOut[]): void {
    const reasons = [...new Set(left.map(({ reason }) => reason))]
    const lines = reasons.map(reason => {
      const indexes = left.filter(step => step.reason === reason).map(({ index }) => index)
      const which =
        indexes.length === steps.length
          ? `all ${steps.length} steps`
          : `steps ${indexes.map(index => `${index} ${steps[index]?.op}`).join(', ')}`
      return `${name}, ${which}: ${reason}`
    })
    this.#files.get(file)?.left.push(...lines)
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
