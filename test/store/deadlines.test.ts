import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { type AsyncStore, createLimiter, type Duration, memoryStore, tokenBucket } from '@sluice/core'
import { guarded } from '@sluice/core/store'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { laterLedger } from '../support/later-ledger.js'
import { run } from '../support/process.js'

/*
 * These tests use real time and real sockets, because a manual clock cannot stall an event loop.
 */

const TEST = join(import.meta.dirname, '..')
const BUCKET = tokenBucket({ limit: 1_000_000, window: '1m' })

/** A thread that answers each line `<id> <milliseconds>` with `<id>`: at once, later, or with a negative number never. */
const ANSWERING = `
  const { createServer } = require('node:net')
  const { parentPort } = require('node:worker_threads')
  const server = createServer(socket => {
    let text = ''
    socket.setNoDelay(true)
    socket.on('data', data => {
      const lines = (text + data).split('\\n')
      text = lines.pop()
      for (const line of lines) {
        const [id, ms] = line.split(' ')
        if (ms === '0') socket.write(id + '\\n')
        else if (ms > 0) setTimeout(() => socket.write(id + '\\n'), ms)
      }
    })
  }).listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port))
`

let thread: Worker
let socket: Socket
const asked = new Map<string, () => void>()
beforeAll(async () => {
  thread = new Worker(ANSWERING, { eval: true })
  const [port] = await once(thread, 'message')
  socket = connect(port, '127.0.0.1').setNoDelay(true).setEncoding('utf8')
  await once(socket, 'connect')
  let text = ''
  socket.on('data', data => {
    const lines = (text + data).split('\n')
    text = lines.pop() as string
    for (const id of lines) {
      asked.get(id)?.()
      asked.delete(id)
    }
  })
})
afterAll(async () => {
  socket.destroy()
  await thread.terminate()
})
afterEach(() => {
  vi.restoreAllMocks()
})

let ids = 0
/** Sends a call over the socket. The thread answers after `ms` milliseconds. */
function overSocket(ms: number): Promise<void> {
  const id = String(ids++)
  socket.write(`${id} ${ms}\n`)
  return new Promise(resolve => asked.set(id, resolve))
}

/** A memory store that answers each call when `answer` resolves. */
function storeOf(answer: (key: string) => Promise<unknown>): AsyncStore {
  const memory = memoryStore()
  return {
    async: true,
    open(spec) {
      const ledger = memory.open(spec)
      const later = laterLedger(ledger, async (act, _verb, key) => {
        await answer(key)
        return act()
      })
      return guarded(later, spec)
    },
  }
}

/** A store over the socket. The key is the number of milliseconds until the answer. */
const socketStore = () => storeOf(key => overSocket(Number.parseInt(key, 10)))
const silentStore = () => storeOf(() => new Promise(() => {}))

function limiterOn(store: AsyncStore, deadline?: Duration) {
  return createLimiter(BUCKET, { store, deadline })
}

/** Blocks the event loop. */
function stall(ms: number): void {
  const until = performance.now() + ms
  while (performance.now() < until);
}

/** How many of the calls missed their deadline. */
async function late(calls: readonly Promise<unknown>[]): Promise<number> {
  const outcomes = await Promise.allSettled(calls)
  const failures = outcomes.filter(({ status }) => status === 'rejected')
  for (const failure of failures) expect(failure).toMatchObject({ reason: { code: 'SLUICE_STORE_ERROR' } })
  return failures.length
}

const many = (count: number, call: (index: number) => Promise<unknown>) =>
  Array.from({ length: count }, (_, i) => call(i))

describe('after a stall of the event loop', () => {
  const PHASES: Record<string, (act: () => void) => void> = {
    'the same tick': act => act(),
    'a microtask': act => queueMicrotask(act),
    'process.nextTick': act => process.nextTick(act),
    'a timer': act => setTimeout(act, 1),
    'an immediate': act => setImmediate(act),
    'the answer of another call': act => overSocket(1).then(act),
  }

  test.each(Object.entries(PHASES))(
    '100 answers that wait in the socket are in time, stalled in %s',
    async (_, at) => {
      const limiter = limiterOn(socketStore())
      const calls = many(100, index => limiter.tryAcquire(`0 ${index}`))
      at(() => stall(300))
      expect(await late(calls)).toBe(0)
      expect(limiter.stats()).toMatchObject({ granted: 100, storeErrors: 0 })
    },
  )

  test('answers are in time after several stalls in a row', async () => {
    const limiter = limiterOn(socketStore())
    const calls: Promise<unknown>[] = []
    for (let round = 0; round < 5; round++) {
      calls.push(...many(100, index => limiter.tryAcquire(`0 ${index}`)))
      stall(150)
      await sleep(round)
    }
    expect(await late(calls)).toBe(0)
  })

  test('only calls without an answer are late', async () => {
    const limiter = limiterOn(socketStore())
    const calls = many(200, index => limiter.tryAcquire(`${index % 2 === 0 ? 0 : -1} ${index}`))
    stall(300)
    const outcomes = await Promise.allSettled(calls)
    expect(outcomes.map(({ status }) => status)).toEqual(
      outcomes.map((_, index) => (index % 2 === 0 ? 'fulfilled' : 'rejected')),
    )
    expect(limiter.stats()).toMatchObject({ granted: 100, storeErrors: 100 })
  })

  test('an answer that arrives during a stall between the timer and its check is in time', async () => {
    const limiter = limiterOn(socketStore())
    // Other work in the turn of the event loop in which the first deadline ends.
    const { setImmediate: real } = globalThis
    vi.spyOn(globalThis, 'setImmediate').mockImplementationOnce(((act: () => void) =>
      real(() => {
        stall(200)
        act()
      })) as typeof setImmediate)
    const silent = limiter.tryAcquire('-1')
    await sleep(60)
    const answered = limiter.tryAcquire('80')
    expect(await late([silent, answered])).toBe(1)
    await expect(answered).resolves.toMatchObject({ allowed: true })
  })
})

describe('a store that does not answer', () => {
  test.each<[Duration | undefined, number]>([
    [undefined, 100],
    [20, 20],
    ['50ms', 50],
    ['0.2s', 200],
    [0.5, 0.5],
  ])('is late after the deadline %j, and not before', async (deadline, ms) => {
    const limiter = limiterOn(silentStore(), deadline)
    const from = performance.now()
    await expect(limiter.tryAcquire('k')).rejects.toMatchObject({
      code: 'SLUICE_STORE_ERROR',
      option: 'store',
      message: `the store has not answered within ${ms} ms`,
    })
    const tookMs = performance.now() - from
    expect(tookMs).toBeGreaterThanOrEqual(ms)
    expect(tookMs).toBeLessThan(ms + 100)
  })

  test('is late for each call separately, in the order of the calls', async () => {
    const limiter = limiterOn(silentStore(), 60)
    const order: [call: number, tookMs: number][] = []
    const calls: Promise<unknown>[] = []
    for (let call = 0; call < 6; call++) {
      const from = performance.now()
      calls.push(limiter.tryAcquire('k').catch(() => order.push([call, performance.now() - from])))
      await sleep(20)
    }
    await Promise.all(calls)
    expect(order.map(([call]) => call)).toEqual([0, 1, 2, 3, 4, 5])
    for (const [, tookMs] of order) {
      expect(tookMs).toBeGreaterThanOrEqual(60)
      expect(tookMs).toBeLessThan(160)
    }
  })

  test('does not delay the answers to later calls', async () => {
    const limiter = limiterOn(socketStore(), '2s')
    let isLate = false
    const silent = limiter.tryAcquire('-1').finally(() => {
      isLate = true
    })
    expect(await late(many(2000, () => limiter.tryAcquire('0')))).toBe(0)
    expect(isLate).toBe(false)
    expect(await late([silent])).toBe(1)
  })

  test('is late even among thousands of answered calls', async () => {
    const limiter = limiterOn(socketStore(), '150ms')
    const calls = many(6000, index => limiter.tryAcquire(index % 1000 === 0 ? '-1' : '0'))
    expect(await late(calls)).toBe(6)
  })

  test('is late after the deadline of each limiter on a shared store', async () => {
    const store = silentStore()
    const order: number[] = []
    const calls = [150, 50, 100].map(deadline =>
      limiterOn(store, deadline)
        .tryAcquire('k')
        .catch(() => order.push(deadline)),
    )
    await Promise.all(calls)
    expect(order).toEqual([50, 100, 150])
  })

  test('is not late before a deadline longer than 2^31 - 1 ms, and sets no busy timer', async () => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const timers = watchTimers()
    const limiter = limiterOn(socketStore(), '30d')
    expect(await late([limiter.tryAcquire('50')])).toBe(0)
    expect(warn).not.toHaveBeenCalled()
    expect(timers.set).toBe(1)
  })
})

describe('late answers', () => {
  interface Call {
    readonly resolve: (value: unknown) => void
    readonly reject: (error: unknown) => void
  }

  /** A store whose calls the test answers. */
  function byHand() {
    const calls: Call[] = []
    const store = storeOf(() => {
      let resolve = (_: unknown) => {}
      let reject = (_: unknown) => {}
      const promise = new Promise<unknown>((yes, no) => {
        resolve = yes
        reject = no
      })
      calls.push({ resolve, reject })
      return promise
    })
    return { store, calls }
  }

  test('are ignored, also errors, without an unhandled rejection', async () => {
    const unhandled: unknown[] = []
    const onUnhandled = (error: unknown) => unhandled.push(error)
    process.on('unhandledRejection', onUnhandled)
    try {
      const { store, calls } = byHand()
      const limiter = limiterOn(store, 20)
      const asks = [limiter.tryAcquire('k'), limiter.tryAcquire('k'), limiter.peek('k'), limiter.reset('k')]
      expect(await late(asks)).toBe(4)
      for (const [index, { resolve, reject }] of calls.entries())
        if (index % 2 === 0) resolve(undefined)
        else reject(new Error('too late'))
      await sleep(20)
      expect(unhandled).toEqual([])
      expect(limiter.stats()).toMatchObject({ granted: 0, refused: 0, storeErrors: 4 })
    } finally {
      process.off('unhandledRejection', onUnhandled)
    }
  })

  test('are charged by the store, and the call is not repeated', async () => {
    const { store, calls } = byHand()
    const limiter = createLimiter(tokenBucket({ limit: 10, window: '30d' }), { store, deadline: 20 })
    expect(await late([limiter.tryAcquire('k', { cost: 4 })])).toBe(1)
    expect(calls.length).toBe(1)
    calls[0]?.resolve(undefined)
    const peeked = limiter.peek('k')
    calls[1]?.resolve(undefined)
    expect((await peeked).remaining).toBe(6)
  })

  test('do not answer a later call', async () => {
    const { store, calls } = byHand()
    const limiter = limiterOn(store, 30)
    expect(await late([limiter.tryAcquire('k')])).toBe(1)
    const next = limiter.tryAcquire('k')
    calls[0]?.resolve(undefined)
    expect(await late([next])).toBe(1)
  })

  test('cause neither an error nor a warning in the process', async () => {
    const output = await run(
      'node',
      [
        ...['--import', 'tsx', '--input-type=module', '--eval'],
        `${SILENT}
        for (const event of ['unhandledRejection', 'uncaughtException', 'warning'])
          process.on(event, () => console.log(event))
        answer = () => new Promise((_, reject) => setTimeout(() => reject(new Error('too late')), 60))
        const limiter = createLimiter(bucket, { store, deadline: 20, onStoreError: 'allow' })
        const decision = await limiter.tryAcquire('k')
        setTimeout(() => console.log(decision.code), 100)`,
      ],
      TEST,
    )
    expect(output).toBe('SLUICE_STORE_ERROR\n')
  })
})

/** Counts the timers that are set from now on, and the running ones. */
function watchTimers() {
  const running = new Set<unknown>()
  const watched = { set: 0, most: 0, running }
  const { setTimeout: set, clearTimeout: clear } = globalThis
  vi.spyOn(globalThis, 'setTimeout').mockImplementation(((act: () => void, ms: number) => {
    const timer = set(() => {
      running.delete(timer)
      act()
    }, ms)
    running.add(timer)
    watched.set++
    watched.most = Math.max(watched.most, running.size)
    return timer
  }) as unknown as typeof setTimeout)
  vi.spyOn(globalThis, 'clearTimeout').mockImplementation((timer: unknown) => {
    running.delete(timer)
    clear(timer as NodeJS.Timeout)
  })
  return watched
}

describe('timers of pending calls', () => {
  test('are one for many calls, and none after all are answered', async () => {
    const timers = watchTimers()
    const limiter = limiterOn(socketStore(), '10s')
    expect(await late(many(1000, () => limiter.tryAcquire('1')))).toBe(0)
    expect(timers).toMatchObject({ set: 1, most: 1 })
    expect(timers.running.size).toBe(0)
  })

  test('are one for many unanswered calls, and none after all are late', async () => {
    const timers = watchTimers()
    const limiter = limiterOn(silentStore(), 30)
    expect(await late(many(1000, () => limiter.tryAcquire('k')))).toBe(1000)
    expect(timers.most).toBe(1)
    expect(timers.running.size).toBe(0)
  })

  test('are one for calls over a time longer than the deadline', async () => {
    const timers = watchTimers()
    const limiter = limiterOn(socketStore(), 30)
    const calls: Promise<number>[] = []
    for (let round = 0; round < 40; round++) {
      calls.push(late([limiter.tryAcquire(round % 3 === 0 ? '-1' : '5')]))
      await sleep(5)
    }
    expect((await Promise.all(calls)).filter(count => count > 0).length).toBe(14)
    expect(timers.most).toBe(1)
    expect(timers.running.size).toBe(0)
  })

  test('are one if the last call is answered and another is made after the timer has fired', async () => {
    const timers = watchTimers()
    const { setImmediate: real } = globalThis
    const answers: (() => void)[] = []
    const limiter = limiterOn(
      storeOf(() => new Promise<void>(resolve => answers.push(resolve))),
      30,
    )
    const first = limiter.tryAcquire('k')
    // One turn of the event loop is left for answers. In it, the first answer is read and another call is made.
    const looked = new Promise<{ running: number; second: Promise<unknown> }>(resolve => {
      vi.spyOn(globalThis, 'setImmediate').mockImplementationOnce(((look: () => void) => {
        answers[0]?.()
        return real(() => {
          const second = limiter.tryAcquire('k')
          look()
          resolve({ running: timers.running.size, second })
        })
      }) as typeof setImmediate)
    })
    const { running, second } = await looked
    answers[1]?.()
    expect(await late([first, second])).toBe(0)
    expect(running).toBe(1)
    expect(timers.running.size).toBe(0)
  })

  test('are one for all limiters of a store with the same deadline', async () => {
    const timers = watchTimers()
    const [store, other] = [silentStore(), silentStore()]
    const calls = [store, store, store].map(store => limiterOn(store).tryAcquire('k'))
    expect(timers.running.size).toBe(1)
    calls.push(limiterOn(store, '0.1s').tryAcquire('k'))
    expect(timers.running.size).toBe(1)
    calls.push(limiterOn(store, 50).tryAcquire('k'), limiterOn(store, 50).tryAcquire('k'))
    expect(timers.running.size).toBe(2)
    calls.push(limiterOn(other).tryAcquire('k'))
    expect(timers.running.size).toBe(3)
    expect(await late(calls)).toBe(7)
    expect(timers.running.size).toBe(0)
  })

  test('do not keep the process alive', async () => {
    const timers = () => process.getActiveResourcesInfo().filter(name => name === 'Timeout').length
    const limiter = limiterOn(silentStore(), 20)
    const before = timers()
    const calls = many(10, () => limiter.tryAcquire('k'))
    expect(timers()).toBe(before)
    expect(await late(calls)).toBe(10)
    expect(timers()).toBe(before)
  })

  test('do not exist on a synchronous store', () => {
    const timers = watchTimers()
    createLimiter(BUCKET, { store: memoryStore(), deadline: 20 }).tryAcquire('k')
    expect(timers.set).toBe(0)
  })
})

/** A module with a store without a socket. It answers by \`answer\`, which never resolves by default. */
const SILENT = `
  import { createLimiter, memoryStore, tokenBucket } from '@sluice/core'
  import { guarded } from '@sluice/core/store'
  const bucket = tokenBucket({ limit: 10, window: '1m' })
  let answer = () => new Promise(() => {})
  const ledger = { async: true, decide: () => answer(), book: () => answer() }
  const store = { async: true, open: spec => guarded(ledger, spec) }
`

describe('a process', () => {
  test('ends even if a store has not answered yet', async () => {
    const from = performance.now()
    const output = await run(
      'node',
      [
        ...['--import', 'tsx', '--input-type=module', '--eval'],
        `${SILENT}
        const limiter = createLimiter(bucket, { store, deadline: '1m' })
        limiter.tryAcquire('k').then(() => console.log('answered'), () => console.log('late'))
        process.on('exit', code => console.log('ended ' + code))`,
      ],
      TEST,
    )
    expect(output).toBe('ended 0\n')
    expect(performance.now() - from).toBeLessThan(30_000)
  })

  test('gets the error of a late call while something else keeps it alive', async () => {
    const output = await run(
      'node',
      [
        ...['--import', 'tsx', '--input-type=module', '--eval'],
        `${SILENT}
        const limiter = createLimiter(bucket, { store, deadline: 20 })
        limiter.tryAcquire('k').catch(error => console.log(error.code))
        setTimeout(() => {}, 200)`,
      ],
      TEST,
    )
    expect(output).toBe('SLUICE_STORE_ERROR\n')
  })
})

describe('invalid options', () => {
  test.each([
    [0, RangeError],
    ['0ms', RangeError],
    [-1, RangeError],
    [0.0001, RangeError],
    [Number.NaN, RangeError],
    [Infinity, RangeError],
    ['100', RangeError],
    ['', RangeError],
    ['soon', RangeError],
    ['1 fortnight', RangeError],
    [null, TypeError],
    [true, TypeError],
    [100n as unknown, TypeError],
    [[100], TypeError],
    [{ ms: 100 }, TypeError],
  ])('deadline %o', (deadline, error) => {
    for (const store of [silentStore(), memoryStore()]) {
      const make = () => createLimiter(BUCKET, { store: store as AsyncStore, deadline: deadline as never })
      expect(make).toThrow(error)
      expect(make).toThrow(expect.objectContaining({ code: 'SLUICE_INVALID_OPTION', option: 'deadline' }))
    }
  })

  test.each(['open', 'local', 'closed', 'Allow', '', true, false, null, 0, [], ['allow'], () => 'allow'])(
    'onStoreError %j',
    onStoreError => {
      for (const store of [silentStore(), memoryStore()]) {
        const make = () =>
          createLimiter(BUCKET, { store: store as AsyncStore, onStoreError: onStoreError as never })
        expect(make).toThrow(TypeError)
        expect(make).toThrow(/'allow', 'refuse' or 'throw'/)
        expect(make).toThrow(
          expect.objectContaining({ code: 'SLUICE_INVALID_OPTION', option: 'onStoreError' }),
        )
      }
    },
  )
})
