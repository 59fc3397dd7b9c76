// The cost of events: decisions without the module for channels, without a subscriber, and with a subscriber. Each
// case runs in its own processes, in turn.
import { spawnSync } from 'node:child_process'
import { medians, table } from './rounds.js'

const CASES = ['without channels', 'no subscriber', 'one subscriber']
const ROUNDS = 7

const chosen = process.argv[2]
if (chosen === undefined) {
  const contenders = Object.fromEntries(CASES.map(name => [name, () => measuredApart(name)]))
  const results = await medians(contenders, ROUNDS)
  const floor = /** @type {number} */ (results['without channels'])
  table([
    ['one decision, one hot key', 'ns', 'ratio'],
    ...Object.entries(results).map(([name, ns]) => [name, ns.toFixed(1), (ns / floor).toFixed(2)]),
  ])
} else {
  process.stdout.write(String(await measure(chosen)))
}

/** @param {string} name */
function measuredApart(name) {
  const flags = ['--conditions=built', '--expose-gc']
  const { status, stdout } = spawnSync(process.execPath, [...flags, import.meta.filename, name])
  if (status !== 0) process.exit(status ?? 1)
  return Number(stdout)
}

/** @param {string} name */
async function measure(name) {
  if (name === 'without channels') Object.assign(process, { getBuiltinModule: undefined })
  const { createLimiter, tokenBucket } = await import('@sluice/core')
  if (name === 'one subscriber') {
    const { subscribe } = await import('node:diagnostics_channel')
    subscribe('sluice:decision', () => {})
  }
  const limiter = createLimiter(tokenBucket({ limit: 100, window: '1m' }))
  const COUNT = 2_000_000
  let bestNs = Infinity
  for (let round = 0; round < 5; round++) {
    const startMs = performance.now()
    for (let ask = 0; ask < COUNT; ask++) limiter.tryAcquire('ann').allowed
    bestNs = Math.min(bestNs, ((performance.now() - startMs) * 1e6) / COUNT)
  }
  return bestNs
}
