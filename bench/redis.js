// Decisions per second on one Redis with 64 in flight, compared with INCR and an empty script, on the same client
// in the same round; commands per decision, and bytes per key. The server is a separate process on loopback.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { createLimiter, tokenBucket, tryAcquireAll } from '@sluice/core'
import { redisStore } from '@sluice/redis'
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { ALGORITHMS } from './algorithms.js'
import { medians, table } from './rounds.js'

const IN_FLIGHT = 64
const KEYS = 1000
const ROUNDS = 9
const SECONDS = 0.3
const GOALS = /** @type {Record<string, number>} */ ({ tokenBucket: 0.7, 'three policies': 0.3 })
const GOAL = 0.45
const NOTHING = 'return 1'
const RATE = /** @type {const} */ ({ limit: 1_000_000, window: '1h' })

const port = await freePort()
const server = spawn('redis-server', ['--port', String(port), '--bind', '127.0.0.1', '--save', ''], {
  stdio: ['ignore', 'pipe', 'inherit'],
})
for await (const chunk of server.stdout) if (String(chunk).includes('Ready to accept')) break
server.stdout.resume()

const ioredis = new Redis(port, '127.0.0.1')
const nodeRedis = await createClient({ url: `redis://127.0.0.1:${port}` }).connect()
const noop = /** @type {string} */ (await ioredis.script('LOAD', NOTHING))

const clients = {
  ioredis: {
    client: ioredis,
    /** @param {string} key */
    incr: key => ioredis.incr(key),
    /** @param {string} key */
    noop: key => ioredis.evalsha(noop, 1, key, ''),
  },
  'node-redis': {
    client: nodeRedis,
    /** @param {string} key */
    incr: key => nodeRedis.incr(key),
    /** @param {string} key */
    noop: key => nodeRedis.evalSha(noop, { keys: [key], arguments: [''] }),
  },
}

try {
  for (const [name, { client, incr, noop }] of Object.entries(clients)) {
    const store = redisStore(client, { prefix: 'bench', deadline: '10s' })
    const limiters = Object.entries(ALGORITHMS).map(([algorithm, make]) => ({
      algorithm,
      limiter: createLimiter(make(RATE), { name: algorithm, store }),
    }))
    const three = [1, 2, 3].map(n =>
      createLimiter(tokenBucket({ limit: 1_000_000 * n, window: '1h' }), { name: `policy-${n}`, store }),
    )
    /** @type {Record<string, (key: string) => PromiseLike<unknown>>} */
    const acts = {
      INCR: incr,
      'EVALSHA of nothing': noop,
      ...Object.fromEntries(
        limiters.map(({ algorithm, limiter }) => [algorithm, key => limiter.tryAcquire(key)]),
      ),
      'three policies': key => tryAcquireAll(three.map(limiter => ({ limiter, key }))),
    }
    const rates = await medians(
      Object.fromEntries(Object.entries(acts).map(([act, run]) => [act, () => rateOf(run)])),
      ROUNDS,
    )
    table([[`${name}, ${IN_FLIGHT} in flight`, 'a second', '/ INCR', 'goal', 'calls each']])
    for (const [act, rate] of Object.entries(rates)) {
      const goal = act === 'INCR' || act.startsWith('EVALSHA') ? '' : `>= ${GOALS[act] ?? GOAL}`
      const calls = (
        await callsEach(/** @type {(key: string) => PromiseLike<unknown>} */ (acts[act]))
      ).toFixed(2)
      table([[act, rate.toFixed(0), (rate / /** @type {number} */ (rates.INCR)).toFixed(2), goal, calls]])
    }
  }

  table([['bytes per key, with one grant', 'of the server', 'of the name', '', '']])
  for (const [algorithm, make] of Object.entries(ALGORITHMS)) {
    const store = redisStore(ioredis, { prefix: 'bytes', deadline: '10s' })
    const limiter = createLimiter(make(RATE), { name: algorithm, store })
    await limiter.tryAcquire('203.0.113.7')
    const [key = ''] = await ioredis.keys(`bytes:{203.0.113.7}:${algorithm}:*`)
    const bytes = await ioredis.memory('USAGE', key)
    table([[algorithm, String(bytes), String(key.length), '', '']])
  }
} finally {
  ioredis.disconnect()
  nodeRedis.destroy()
  server.kill()
}

/** @param {(key: string) => PromiseLike<unknown>} act */
async function rateOf(act) {
  const endMs = performance.now() + SECONDS * 1000
  let done = 0
  const startMs = performance.now()
  const lane = async () => {
    while (performance.now() < endMs) await act(`{${done++ % KEYS}}`)
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, lane))
  return (done * 1000) / (performance.now() - startMs)
}

/**
 * The number of commands that the server receives per decision.
 * @param {(key: string) => PromiseLike<unknown>} act
 */
async function callsEach(act) {
  await ioredis.config('RESETSTAT')
  for (let count = 0; count < 100; count++) await act(`{${count}}`)
  const stats = await ioredis.info('commandstats')
  const calls = stats.matchAll(/cmdstat_(evalsha|eval|incr):calls=(\d+)/g)
  return [...calls].reduce((sum, [, , count]) => sum + Number(count), 0) / 100
}

async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = /** @type {import('node:net').AddressInfo} */ (probe.address())
  probe.close()
  await once(probe, 'close')
  return port
}
