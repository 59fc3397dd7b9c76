// Draws what each algorithm grants over time, from real runs on a manual clock: npm run pictures [-- --write]
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  createLimiter,
  cycle,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from '@sluice/core'
import { manualClock } from '@sluice/core/testing'

const RATE = /** @type {const} */ ({ limit: 10, window: '1s' })
/** Permits come back one by one. */
const STEADY = {
  tokenBucket: tokenBucket(RATE),
  smoothBursty: smoothBursty(RATE),
  smoothWarmingUp: smoothWarmingUp({ ...RATE, warmup: '1s' }),
  leakyBucket: leakyBucket({ ...RATE, capacity: 10 }),
}
/** Permits come back at the end of a window. */
const WINDOWED = {
  fixedWindow: fixedWindow(RATE),
  cycle: cycle({ limit: RATE.limit, period: RATE.window }),
  slidingWindow: slidingWindow(RATE),
  slidingLog: slidingLog(RATE),
}

const ASKS_EVERY_MS = 10
const COLUMN_MS = 100
const COLUMNS_PER_SECOND = 1000 / COLUMN_MS
const COLUMNS = 60
// Without the full block character, so that the bars of two lines do not touch.
const HEIGHTS = '▁▂▃▄▅▆▇'
const LABEL_WIDTH = 17
const START = '<!-- pictures -->'
const END = '<!-- /pictures -->'

if (process.argv[1] === import.meta.filename) {
  if (process.argv.includes('--write')) {
    const path = join(import.meta.dirname, '../docs/algorithms.md')
    await writeFile(path, withPictures(await readFile(path, 'utf8')))
  }
  console.log(pictures())
}

/** The permits that each algorithm grants to the same client, as Markdown. */
export function pictures() {
  return [
    `One client asks every ${ASKS_EVERY_MS} ms, rests, asks once, and asks every ${ASKS_EVERY_MS} ms again. Each row shows the permits that an`,
    `algorithm grants at 10 per second. A column is ${COLUMN_MS} ms; ${bar(1)} is one permit and ${bar(10)} is ten.`,
    '',
    '```text',
    row('asked for', columns(asks())),
    '',
    ...Object.entries(STEADY).map(([name, algorithm]) => row(name, grants(algorithm))),
    '',
    ...Object.entries(WINDOWED).map(([name, algorithm]) => row(name, grants(algorithm))),
    ...axis(),
    '```',
  ].join('\n')
}

/** The page with new pictures between its two comments. @param {string} page */
export function withPictures(page) {
  const from = page.indexOf(START)
  const to = page.indexOf(END, from)
  if (from < 0 || to < 0) throw new Error(`docs/algorithms.md needs ${START} and ${END} around the pictures`)
  return `${page.slice(0, from)}${START}\n${pictures()}\n${page.slice(to)}`
}

/** Constant requests, a pause with one request in it, and constant requests again less than a second after that one. */
function asks() {
  const times = []
  for (let ms = 0; ms < COLUMNS * COLUMN_MS; ms += ASKS_EVERY_MS)
    if (ms < 1500 || ms === 2900 || ms >= 3800) times.push(ms)
  return times
}

/** Permits per column, counted when the request may act. @param {import('@sluice/core').Algorithm} algorithm */
function grants(algorithm) {
  const clock = manualClock()
  const startMs = clock.nowMs
  const limiter = createLimiter(algorithm, { clock })
  const isQueue = algorithm.policy.maxWaitMs !== undefined
  const times = []
  for (const ms of asks()) {
    clock.set(startMs + ms)
    const { allowed, waitMs } = isQueue ? limiter.reserve('ann') : limiter.tryAcquire('ann')
    if (allowed) times.push(ms + waitMs)
  }
  return columns(times)
}

/** @param {number[]} times */
function columns(times) {
  const counts = Array.from({ length: COLUMNS }, () => 0)
  for (const ms of times) {
    const column = Math.floor(ms / COLUMN_MS)
    if (column < COLUMNS) counts[column] = (counts[column] ?? 0) + 1
  }
  return counts
}

/**
 * @param {string} label
 * @param {number[]} counts
 */
function row(label, counts) {
  return `${label.padEnd(LABEL_WIDTH)}${counts.map(bar).join('')}`.trimEnd()
}

function axis() {
  const margin = ' '.repeat(LABEL_WIDTH)
  const seconds = Array.from({ length: COLUMNS / COLUMNS_PER_SECOND }, (_, second) => `${second} s`)
  const line = seconds.map(() => '┬'.padEnd(COLUMNS_PER_SECOND, '─')).join('')
  const numbers = seconds.map(second => second.padEnd(COLUMNS_PER_SECOND)).join('')
  return [margin + line, margin + numbers.trimEnd()]
}

/** @param {number} permits 0 to 10 */
function bar(permits) {
  return permits === 0 ? ' ' : HEIGHTS.charAt(Math.round(((permits - 1) / 9) * 6))
}
