import { createHash } from 'node:crypto'
import { type RedisClient, redisStore } from '@sluice/redis'
import { Redis } from 'ioredis'
import { type Act, Actor, type Deed, HAMMERED } from './hammer-limiters.js'

/*
 * A process that makes as many calls as it can, and sends its parent the answers. Arguments: the port, a name, and for how many
 * milliseconds. It starts at the first message of its parent.
 */

const [port, name = '', ms] = process.argv.slice(2)
const redis = new Redis(Number(port))
const IN_FLIGHT = 8

/** Wraps a script so that it also returns the time it has read, and how many scripts the server has run. */
function wrapped(text: string): string {
  return `
local time
local real = redis
local redis = {pcall = real.pcall, call = function(...)
  local reply = real.call(...)
  if ... == 'TIME' and not time then time = reply end
  return reply
end}
local function act(KEYS, ARGV)
${text}
end
local reply = act(KEYS, ARGV)
return {reply, time[1], time[2], real.call('INCR', 'order')}`
}

const texts = new Map<string, string>()

/** A client for one call after the other, and when the server ran the last one. */
function observed() {
  const last = { atUs: 0, order: 0 }
  const run = async (sha: string, keys: unknown[]) => {
    const text = texts.get(sha)
    if (text === undefined) throw new Error('NOSCRIPT')
    const [reply, seconds, us, order] = (await redis.eval(text, ...(keys as [number, string]))) as [
      unknown,
      string,
      string,
      number,
    ]
    Object.assign(last, { atUs: Number(seconds) * 1e6 + Number(us), order })
    return reply
  }
  const client: RedisClient = {
    evalsha: (sha, ...keys) => run(sha, keys),
    eval(text, ...keys) {
      const sha = createHash('sha1').update(text).digest('hex')
      texts.set(sha, wrapped(text))
      return run(sha, keys)
    },
    scan: redis.scan.bind(redis),
    unlink: redis.unlink.bind(redis),
  }
  return { client, last }
}

async function hammer(loop: number, endMs: number): Promise<Deed[]> {
  const { client, last } = observed()
  const actor = new Actor(redisStore(client))
  const deeds: Deed[] = []
  const reserved: string[] = []
  for (let count = 0; performance.now() < endMs; count++) {
    const act = anAct(`${name}${loop}-${count}`, reserved)
    const answer = await actor.do(act)
    if (act.verb === 'reserve' && answer.includes('"allowed":true')) reserved.push(`${act.limiter} ${act.id}`)
    // A call that did not reach the server is left out.
    if (last.order !== (deeds.at(-1)?.order ?? 0)) deeds.push({ ...act, ...last, answer })
  }
  return deeds
}

function anAct(id: string, reserved: string[]): Act {
  const { name: limiter } = Math.random() < 0.3 ? HAMMERED[0] : any(HAMMERED)
  if (limiter === 'bound') return { limiter, verb: 'tryAcquire', cost: 1, id }
  const verb = any([
    'tryAcquire',
    'tryAcquire',
    'tryAcquire',
    'peek',
    'reserve',
    'reserve',
    'release',
    'give',
  ] as const)
  if (verb !== 'give') return { limiter, verb, cost: any([0, 1, 1, 1, 2, 3]), id }
  const [of, given] = (reserved.at(-1 - Math.floor(Math.random() * 3)) ?? '').split(' ')
  if (of === undefined || given === undefined) return { limiter, verb: 'peek', cost: 1, id }
  return { limiter: of, verb: any(['cancel', 'refund'] as const), cost: 0, id: given }
}

function any<T>(values: readonly T[]): T {
  return values[Math.floor(Math.random() * values.length)] as T
}

process.once('message', async () => {
  const endMs = performance.now() + Number(ms)
  const deeds = await Promise.all(Array.from({ length: IN_FLIGHT }, (_, loop) => hammer(loop, endMs)))
  redis.disconnect()
  process.send?.(deeds.flat(), () => process.disconnect())
})
redis.once('ready', () => process.send?.('ready'))
