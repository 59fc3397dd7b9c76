import type { CounterState } from '@sluice/core/store'

/** A counter in memory with the callbacks of `counterStore`. Each counts at once and answers a turn later. */
export function memoryCounter({
  resetAfterMs = 3_600_000,
}: {
  readonly resetAfterMs?: number | undefined
} = {}) {
  const counts = new Map<string, number>()
  return {
    counts,
    async hit(key: string, cost: number): Promise<CounterState> {
      const used = (counts.get(key) ?? 0) + cost
      counts.set(key, used)
      return { used, resetAfterMs }
    },
    async read(key: string): Promise<CounterState | undefined> {
      const used = counts.get(key)
      return used === undefined ? undefined : { used, resetAfterMs }
    },
    async undo(key: string, cost: number): Promise<void> {
      counts.set(key, (counts.get(key) ?? 0) - cost)
    },
    async forget(key: string): Promise<void> {
      counts.delete(key)
    },
  }
}
