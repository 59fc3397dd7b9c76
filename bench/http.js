// Requests per second of a bare framework, with a middleware that writes two constant headers, and with Sluice. The
// server and the load generator are separate processes on loopback, and a round takes a few seconds.
import { execFile, fork, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { median, medians, table } from './rounds.js'

const FRAMEWORKS = ['express', 'koa', 'fastify']
const GOAL = 0.97
const ROUNDS = 11
const WARM_UP_SECONDS = 1
const SECONDS = 2
const CONNECTIONS = 50
// Pins the server and the load generator to a core each if the system can, for much less noise.
const PINS = availableParallelism() > 1 && spawnSync('taskset', ['-V']).status === 0
const autocannon = createRequire(import.meta.url).resolve('autocannon')

table([['framework', 'bare', 'two headers', 'sluice', 'sluice / two', 'goal']])
for (const framework of FRAMEWORKS) {
  /** Server CPU time of each round in microseconds per request. Other processes affect it less than the rate. */
  const cpu = /** @type {Record<'bare' | 'headers' | 'sluice', number[]>} */ ({
    bare: [],
    headers: [],
    sluice: [],
  })
  /** @param {keyof typeof cpu} variant */
  const round = async variant => {
    // A new process each time, because two processes of one program differ by a few percent for their whole run.
    const server = await serve(framework, variant)
    await load(server.url, WARM_UP_SECONDS)
    const startUs = await server.cpuUs()
    const { rate, requests } = await load(server.url, SECONDS)
    cpu[variant].push(((await server.cpuUs()) - startUs) / requests)
    server.stop()
    return rate
  }
  const { bare, headers, sluice } = await medians(
    { bare: () => round('bare'), headers: () => round('headers'), sluice: () => round('sluice') },
    ROUNDS,
  )
  const ratio = (sluice / headers).toFixed(3)
  table([
    [`${framework}, requests/s`, bare.toFixed(0), headers.toFixed(0), sluice.toFixed(0), ratio, `>= ${GOAL}`],
  ])
  const cpus = [cpu.bare, cpu.headers, cpu.sluice].map(values => median(values.slice(1)))
  const [, headersUs = 0, sluiceUs = 0] = cpus
  table([
    [
      `${framework}, server CPU us/request`,
      ...cpus.map(us => us.toFixed(1)),
      (headersUs / sluiceUs).toFixed(3),
      '',
    ],
  ])
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
  if (PINS) spawnSync('taskset', ['-a', '-c', '-p', '0', String(child.pid)])
  const [port] = await once(child, 'message')
  return {
    url: `http://127.0.0.1:${port}/`,
    stop: () => child.kill(),
    /** The CPU time used by the server, in microseconds. */
    async cpuUs() {
      child.send('cpu')
      const [us] = await once(child, 'message')
      return /** @type {number} */ (us)
    },
  }
}

/**
 * @param {string} url
 * @param {number} seconds
 */
async function load(url, seconds) {
  const pin = PINS ? ['taskset', '-c', '1'] : []
  const options = ['--json', '--duration', String(seconds), '--connections', String(CONNECTIONS), url]
  const [command = '', ...args] = [...pin, process.execPath, autocannon, ...options]
  const { stdout } = await promisify(execFile)(command, args, { maxBuffer: 2 ** 24 })
  const { requests, non2xx, errors } = JSON.parse(stdout)
  if (non2xx + errors > 0) throw new Error(`${url}: ${non2xx} answers were no 2xx, ${errors} failed`)
  return { rate: requests.average, requests: requests.total }
}
