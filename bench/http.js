// Requests per second of a framework as it is, with a middleware that writes two constant headers, and with Sluice. The
// server and the load are processes of their own, on loopback, and a round is a few seconds.
import { execFile, fork } from 'node:child_process'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { medians, table } from './rounds.js'

const FRAMEWORKS = ['express']
const GOAL = 0.97
const ROUNDS = 7
const SECONDS = 3
const CONNECTIONS = 50
const autocannon = createRequire(import.meta.url).resolve('autocannon')

table([['requests per second', 'bare', 'two headers', 'sluice', 'sluice / two', 'goal']])
for (const framework of FRAMEWORKS) {
  const bare = await serve(framework, 'bare')
  const headers = await serve(framework, 'headers')
  const sluice = await serve(framework, 'sluice')
  const rates = await medians(
    { bare: () => load(bare.url), headers: () => load(headers.url), sluice: () => load(sluice.url) },
    ROUNDS,
  )
  for (const server of [bare, headers, sluice]) server.stop()
  const cells = [rates.bare, rates.headers, rates.sluice].map(rate => rate.toFixed(0))
  table([[framework, ...cells, (rates.sluice / rates.headers).toFixed(3), `>= ${GOAL}`]])
}

/**
 * @param {string} framework
 * @param {string} variant
 */
async function serve(framework, variant) {
  const child = fork(join(import.meta.dirname, 'servers', `${framework}.js`), [variant], {
    execArgv: ['--conditions=built'],
    env: { ...process.env, NODE_ENV: 'production' },
  })
  const [port] = await once(child, 'message')
  return { url: `http://127.0.0.1:${port}/`, stop: () => child.kill() }
}

/** @param {string} url */
async function load(url) {
  const args = [
    autocannon,
    '--json',
    '--duration',
    String(SECONDS),
    '--connections',
    String(CONNECTIONS),
    url,
  ]
  const { stdout } = await promisify(execFile)(process.execPath, args, { maxBuffer: 2 ** 24 })
  const { requests, non2xx, errors } = JSON.parse(stdout)
  if (non2xx + errors > 0) throw new Error(`${url}: ${non2xx} answers were no 2xx, ${errors} failed`)
  return requests.average
}
