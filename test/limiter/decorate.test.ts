import { setImmediate as nextTurn } from 'node:timers/promises'
import { runInThisContext } from 'node:vm'
import {
  combine,
  createLimiter,
  type LimitedOptions,
  type Limiter,
  limited,
  memoryStore,
  RateLimitedError,
  tokenBucket,
} from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import typescript from 'typescript5'
import { describe, expect, test, vi } from 'vitest'
import { asynchronous } from '../support/async-store.js'

/** Two permits for each key; one more comes every 30 seconds. */
function setUp() {
  const clock = manualClock()
  const bucket = tokenBucket({ limit: 2, window: '1m' })
  const limiter = createLimiter(bucket, { name: 'two', clock })
  const later = createLimiter(bucket, { name: 'later', clock, store: asynchronous(memoryStore()) })
  const remaining = (key = 'default') => limiter.peek(key).remaining
  return { clock, limiter, later, remaining }
}

/** The error that `act` throws synchronously. Fails if it throws nothing. */
function thrownBy(act: () => unknown): unknown {
  try {
    act()
  } catch (error) {
    return error
  }
  return expect.fail('nothing was thrown')
}

/** The error that `act` rejects with. Fails if it throws synchronously. */
function rejectionOf(act: () => unknown): Promise<unknown> {
  const promise = act() as Promise<unknown>
  expect(promise).toBeInstanceOf(Promise)
  return promise.then(
    () => expect.fail('it did not reject'),
    error => error,
  )
}

describe('a limited function', () => {
  test('returns synchronously what the function returns', () => {
    const { limiter } = setUp()
    expect(limited(limiter)((a: number, b: number) => a + b)(1, 2)).toBe(3)
  })

  test('passes on `this` and every argument', () => {
    const { limiter } = setUp()
    const seen = vi.fn()
    const limitedSeen = limited(limiter)(seen)
    const self = { limitedSeen }
    self.limitedSeen('a', undefined, 3)
    expect(seen.mock.calls).toEqual([['a', undefined, 3]])
    expect(seen.mock.contexts).toEqual([self])
  })

  test('passes on `this` and every argument after a wait too', async () => {
    const { limiter } = setUp()
    const seen = vi.fn()
    const self = { limitedSeen: limited(limiter, { maxWait: '1m' })(seen) }
    await self.limitedSeen('a', 2)
    expect(seen.mock.calls).toEqual([['a', 2]])
    expect(seen.mock.contexts).toEqual([self])
  })

  test('keeps its name', () => {
    const { limiter, later } = setUp()
    function sendMail() {}
    expect(limited(limiter)(sendMail).name).toBe('sendMail')
    expect(limited(later, { maxWait: '1s' })(sendMail).name).toBe('sendMail')
  })

  test('resolves to the result of an async function', async () => {
    const { limiter } = setUp()
    const answer = limited(limiter)(async (to: string) => `sent to ${to}`)('ann')
    expect(answer).toBeInstanceOf(Promise)
    expect(await answer).toBe('sent to ann')
  })

  test('returns the same promise object as the function', () => {
    const { limiter } = setUp()
    const promise = Promise.resolve(1)
    expect(limited(limiter)(() => promise)()).toBe(promise)
  })

  test('throws or rejects with the error of the function', async () => {
    const { limiter, remaining } = setUp()
    const failure = new Error('no such address')
    const failing = () => {
      throw failure
    }
    expect(thrownBy(limited(limiter)(failing))).toBe(failure)
    expect(await rejectionOf(limited(limiter)(async () => failing()))).toBe(failure)
    expect(remaining()).toBe(0)
  })

  test('takes one permit per call from one shared key by default', () => {
    const { limiter, remaining } = setUp()
    const send = limited(limiter)((_to: string) => {})
    send('ann')
    expect(remaining('default')).toBe(1)
    send('bob')
    expect(remaining('default')).toBe(0)
    expect(thrownBy(() => send('cem'))).toBeInstanceOf(RateLimitedError)
  })

  test('takes the given cost from the given key', () => {
    const { limiter, remaining } = setUp()
    limited(limiter, { key: 'mail', cost: 2 })(() => {})()
    expect([remaining('mail'), remaining('default')]).toEqual([0, 2])
  })

  test('computes key and cost from the arguments', () => {
    const { limiter, remaining } = setUp()
    const send = limited(limiter, {
      key: (to: string, _texts: string[]) => to,
      cost: (_to: string, texts: string[]) => texts.length,
    })((to: string, texts: string[]) => `${to}: ${texts}`)
    expect(send('ann', ['a', 'b'])).toBe('ann: a,b')
    send('bob', ['a'])
    send('cem', [])
    expect([remaining('ann'), remaining('bob'), remaining('cem')]).toEqual([0, 1, 2])
  })

  test('runs again after the permits have refilled', () => {
    const { clock, limiter } = setUp()
    const send = limited(limiter, { cost: 2 })(() => 'sent')
    send()
    clock.advance(59_999)
    expect(thrownBy(send)).toMatchObject({ decision: { retryAfterMs: 1 } })
    clock.advance(1)
    expect(send()).toBe('sent')
  })
})

describe('a refusal', () => {
  test('is thrown before the function runs', () => {
    const { limiter } = setUp()
    const action = vi.fn()
    expect(thrownBy(() => limited(limiter, { cost: 3 })(action)())).toBeInstanceOf(RateLimitedError)
    expect(action).not.toHaveBeenCalled()
  })

  test('names the limiter and the key, and when to retry', () => {
    const { limiter } = setUp()
    const send = limited(limiter, { key: (to: string) => to })((to: string) => to)
    send('ann')
    send('ann')
    const error = thrownBy(() => send('ann')) as RateLimitedError
    expect(error).toBeInstanceOf(RateLimitedError)
    expect(error).toMatchObject({ code: 'SLUICE_RATE_LIMITED', limiter: 'two', key: 'ann' })
    expect(error.decision.toJSON()).toEqual(limiter.peek('ann').toJSON())
    expect(error.decision).toMatchObject({ allowed: false, retryAfterMs: 30_000 })
    expect(error.message).not.toContain('ann')
  })

  test('rejects if the function is async', async () => {
    const { limiter } = setUp()
    const action = vi.fn()
    const error = await rejectionOf(
      limited(limiter, { key: 'mail', cost: 3 })(async () => {
        action()
      }),
    )
    expect(error).toBeInstanceOf(RateLimitedError)
    expect(error).toMatchObject({ code: 'SLUICE_RATE_LIMITED', limiter: 'two', key: 'mail' })
    expect(action).not.toHaveBeenCalled()
  })

  test('rejects if an async function is limited twice and either limiter refuses', async () => {
    const { limiter } = setUp()
    const send = async () => 'sent'
    const refusing = limited(limiter, { cost: 3 })
    const granting = limited(limiter, { cost: 0 })
    expect(await rejectionOf(granting(refusing(send)))).toBeInstanceOf(RateLimitedError)
    expect(await rejectionOf(refusing(granting(send)))).toBeInstanceOf(RateLimitedError)
  })

  test('changes nothing', () => {
    const { limiter, remaining } = setUp()
    thrownBy(limited(limiter, { cost: 3 })(() => {}))
    expect(remaining()).toBe(2)
  })
})

describe('with maxWait', () => {
  test.each([0, '1m'] as const)('of %o a function returns a promise', async maxWait => {
    const { limiter } = setUp()
    const answer = limited(limiter, { maxWait })((to: string) => `sent to ${to}`)('ann')
    expect(answer).toBeInstanceOf(Promise)
    expect(await answer).toBe('sent to ann')
  })

  test('of 0 a call does not wait', async () => {
    const { clock, limiter } = setUp()
    const action = vi.fn()
    const error = await rejectionOf(limited(limiter, { maxWait: 0, key: 'mail', cost: 3 })(action))
    expect(error).toBeInstanceOf(RateLimitedError)
    expect(error).toMatchObject({ limiter: 'two', key: 'mail', decision: { allowed: false } })
    expect(action).not.toHaveBeenCalled()
    expect(clock.alarms).toBe(0)
  })

  test('a call waits until its permits are available, and no longer', async () => {
    const { clock, limiter } = setUp()
    const action = vi.fn(() => clock.nowMs)
    const send = limited(limiter, { maxWait: '30s' })(action)
    await Promise.all([send(), send()])
    const calledAt = clock.nowMs
    const third = send()
    expect(clock.alarms).toBe(1)
    clock.advance('30s')
    expect(await third).toBe(calledAt + 30_000)
    expect(action).toHaveBeenCalledTimes(3)
  })

  test('a call is refused if it would wait longer, and takes nothing', async () => {
    const { limiter, remaining } = setUp()
    limiter.drain('default')
    const before = limiter.peek('default').toJSON()
    const error = await rejectionOf(limited(limiter, { maxWait: 29_999 })(() => {}))
    expect(error).toMatchObject({ code: 'SLUICE_RATE_LIMITED', decision: { waitMs: 30_000 } })
    expect(limiter.peek('default').toJSON()).toEqual(before)
    expect(remaining()).toBe(0)
  })

  test('an error of the function and an invalid key reject', async () => {
    const { limiter } = setUp()
    const failure = new Error('no such address')
    const failing = () => {
      throw failure
    }
    expect(await rejectionOf(limited(limiter, { maxWait: 0 })(failing))).toBe(failure)
    expect(await rejectionOf(limited(limiter, { maxWait: 0, key: () => '' })(failing))).toMatchObject({
      code: 'SLUICE_INVALID_KEY',
    })
  })
})

describe('with a signal', () => {
  test('a function returns a promise, and waits without limit', async () => {
    const { clock, limiter } = setUp()
    const send = limited(limiter, { cost: 2, signal: new AbortController().signal })(() => 'sent')
    expect(await send()).toBe('sent')
    const second = send()
    const third = send()
    clock.advance('2m')
    expect(await Promise.all([second, third])).toEqual(['sent', 'sent'])
  })

  test('a call that is aborted while it waits does not run, and gives its permits back', async () => {
    const { clock, limiter, remaining } = setUp()
    const abort = new AbortController()
    const action = vi.fn()
    const send = limited(limiter, { signal: abort.signal, maxWait: '1m' })(action)
    limiter.drain('default')
    const sending = rejectionOf(send)
    abort.abort('the client is gone')
    expect(await sending).toBe('the client is gone')
    clock.advance('30s')
    expect(remaining()).toBe(1)
    expect(action).not.toHaveBeenCalled()
  })

  test('that is already aborted, a call takes nothing', async () => {
    const { limiter, remaining } = setUp()
    const action = vi.fn()
    expect(await rejectionOf(limited(limiter, { signal: AbortSignal.abort('gone') })(action))).toBe('gone')
    expect(action).not.toHaveBeenCalled()
    expect(remaining()).toBe(2)
  })

  test('from the arguments, each call has its own signal', async () => {
    const { clock, limiter } = setUp()
    const [ann, bob] = [new AbortController(), new AbortController()]
    const send = limited(limiter, {
      signal: (_to: string, signal?: AbortSignal) => signal,
      maxWait: '1m',
    })((to: string, _signal?: AbortSignal) => `sent to ${to}`)
    limiter.drain('default')
    const toAnn = rejectionOf(() => send('ann', ann.signal))
    const toBob = send('bob', bob.signal)
    ann.abort('ann is gone')
    expect(await toAnn).toBe('ann is gone')
    const toCem = send('cem')
    clock.advance('1m')
    expect(await Promise.all([toBob, toCem])).toEqual(['sent to bob', 'sent to cem'])
  })
})

describe('drainOn', () => {
  const upstream = { status: 429 }
  const failing = () => {
    throw upstream
  }
  const outcomes: readonly [outcome: string, action: () => unknown, failed: boolean][] = [
    ['a result', () => upstream, false],
    ['an async result', async () => upstream, false],
    ['a promised result', () => Promise.resolve(upstream), false],
    ['a thrown error', failing, true],
    ['a rejection', async () => failing(), true],
    ['a promised rejection', () => Promise.reject(upstream), true],
  ]

  describe.each(outcomes)('on %s', (_, action, failed) => {
    const ways: readonly [way: string, options: LimitedOptions][] = [
      ['at once', {}],
      ['with maxWait', { maxWait: '1m' }],
    ]

    test.each(ways)('drains the key if it returns true, %s', async (_, options) => {
      const { limiter, remaining } = setUp()
      const drainOn = vi.fn(() => true)
      const outcome = await outcomeOf(limited(limiter, { ...options, key: 'api', drainOn })(action))
      expect(outcome).toEqual({ value: upstream, failed })
      expect(drainOn.mock.calls).toEqual([[upstream, failed]])
      expect([remaining('api'), remaining('other')]).toEqual([0, 2])
    })

    test.each(ways)('drains nothing if it returns false, %s', async (_, options) => {
      const { limiter, remaining } = setUp()
      const outcome = await outcomeOf(
        limited(limiter, { ...options, key: 'api', drainOn: () => false })(action),
      )
      expect(outcome).toEqual({ value: upstream, failed })
      expect(remaining('api')).toBe(1)
    })

    test('drains an asynchronous limiter before the call settles', async () => {
      const { later } = setUp()
      const drain = later.drain.bind(later)
      let drained = 0
      vi.spyOn(later, 'drain').mockImplementation(async key => {
        await nextTurn()
        drained = await drain(key)
        return drained
      })
      const outcome = await outcomeOf(limited(later, { key: 'api', drainOn: () => true })(action))
      expect(outcome).toEqual({ value: upstream, failed })
      expect(drained).toBe(1)
      expect((await later.peek('api')).remaining).toBe(0)
    })
  })

  test('keeps a synchronous function synchronous', () => {
    const { limiter } = setUp()
    expect(limited(limiter, { drainOn: () => true })(() => 'sent')()).toBe('sent')
    limiter.reset('default')
    expect(thrownBy(limited(limiter, { drainOn: () => true })(failing))).toBe(upstream)
  })

  test('is not called for a refusal', () => {
    const { limiter } = setUp()
    const drainOn = vi.fn(() => true)
    thrownBy(limited(limiter, { cost: 3, drainOn })(() => {}))
    expect(drainOn).not.toHaveBeenCalled()
  })

  test('drains a combination', () => {
    const { clock, limiter } = setUp()
    const daily = createLimiter(tokenBucket({ limit: 9, window: '1d' }), { name: 'daily', clock })
    const both = combine(limiter, daily)
    limited(both, { drainOn: () => true })(() => {})()
    expect(both.peek('default').remaining).toBe(0)
  })

  /** The result or the error of a synchronous or asynchronous call. */
  async function outcomeOf(act: () => unknown) {
    try {
      return { value: await act(), failed: false }
    } catch (error) {
      return { value: error, failed: true }
    }
  }
})

describe('on an asynchronous limiter', () => {
  test('a function returns a promise', async () => {
    const { later } = setUp()
    const answer = limited(later, { key: (to: string) => to })((to: string) => `sent to ${to}`)('ann')
    expect(answer).toBeInstanceOf(Promise)
    expect(await answer).toBe('sent to ann')
    expect((await later.peek('ann')).remaining).toBe(1)
  })

  test('a refusal rejects, before the function runs', async () => {
    const { later } = setUp()
    const action = vi.fn()
    const error = await rejectionOf(limited(later, { key: 'mail', cost: 3 })(action))
    expect(error).toBeInstanceOf(RateLimitedError)
    expect(error).toMatchObject({ limiter: 'later', key: 'mail', decision: { allowed: false } })
    expect(action).not.toHaveBeenCalled()
  })

  test('a store error rejects, and the function does not run', async () => {
    const store = asynchronous(memoryStore())
    const limiter = createLimiter(tokenBucket({ limit: 2, window: '1m' }), { store })
    store.failWith(new Error('the store is down'))
    const action = vi.fn()
    expect(await rejectionOf(limited(limiter)(action))).toMatchObject({ code: 'SLUICE_STORE_ERROR' })
    expect(action).not.toHaveBeenCalled()
  })
})

describe('on a combination', () => {
  test('a call takes from every member, or from none', () => {
    const { clock, limiter, remaining } = setUp()
    const hourly = createLimiter(tokenBucket({ limit: 3, window: '1h' }), { name: 'hourly', clock })
    const send = limited(combine(limiter, hourly), { key: (to: string) => to })((to: string) => to)
    expect([send('ann'), send('ann')]).toEqual(['ann', 'ann'])
    const error = thrownBy(() => send('ann'))
    expect(error).toMatchObject({ limiter: 'two+hourly', key: 'ann', decision: { refusedBy: ['two'] } })
    expect([remaining('ann'), hourly.peek('ann').remaining]).toEqual([0, 1])
  })
})

describe('invalid options', () => {
  const { limiter } = setUp()

  test.each([
    ['a number', 5],
    ['nothing', undefined],
    ['an algorithm', tokenBucket({ limit: 2, window: '1m' })],
  ])('a limiter that is %s', (_, value) => {
    expect(thrownBy(() => limited(value as unknown as Limiter))).toMatchObject({
      name: 'TypeError',
      code: 'SLUICE_INVALID_LIMITER',
      option: 'limiter',
    })
  })

  test.each([
    ['key', 5, 'TypeError', 'SLUICE_INVALID_KEY'],
    ['key', null, 'TypeError', 'SLUICE_INVALID_KEY'],
    ['cost', '1', 'TypeError', 'SLUICE_INVALID_COST'],
    ['cost', 2n, 'TypeError', 'SLUICE_INVALID_COST'],
    ['maxWait', '5', 'RangeError', 'SLUICE_INVALID_OPTION'],
    ['maxWait', -1, 'RangeError', 'SLUICE_INVALID_OPTION'],
    ['maxWait', null, 'TypeError', 'SLUICE_INVALID_OPTION'],
    ['drainOn', 429, 'TypeError', 'SLUICE_INVALID_OPTION'],
    ['signal', 'abort', 'TypeError', 'SLUICE_INVALID_OPTION'],
    ['signal', new AbortController(), 'TypeError', 'SLUICE_INVALID_OPTION'],
    ['keys', 'ann', 'TypeError', 'SLUICE_UNKNOWN_OPTION'],
    ['unref', true, 'TypeError', 'SLUICE_UNKNOWN_OPTION'],
  ])('%s: %o', (option, value, name, code) => {
    expect(thrownBy(() => limited(limiter, { [option]: value } as never))).toMatchObject({
      name,
      code,
      option,
    })
  })

  test.each([
    ['cost', 1.5, 'RangeError', 'SLUICE_INVALID_COST'],
    ['cost', -1, 'RangeError', 'SLUICE_INVALID_COST'],
    ['cost', Number.NaN, 'RangeError', 'SLUICE_INVALID_COST'],
    ['key', '', 'TypeError', 'SLUICE_INVALID_KEY'],
  ])('%s: %o, which can never be granted', (option, value, name, code) => {
    expect(thrownBy(() => limited(limiter, { [option]: value } as never))).toMatchObject({
      name,
      code,
      option,
    })
  })

  test.each([
    ['a function', () => {}],
    ['a string', 'ann'],
    ['null', null],
  ])('options that are %s', (_, options) => {
    expect(thrownBy(() => limited(limiter, options as never))).toMatchObject({
      name: 'TypeError',
      code: 'SLUICE_INVALID_OPTION',
    })
  })

  test.each([undefined, 'send', { send() {} }])('limited() on %o, which is not a function', action => {
    expect(thrownBy(() => limited(limiter)(action as never))).toMatchObject({
      name: 'TypeError',
      code: 'SLUICE_INVALID_OPTION',
      option: 'limited',
    })
  })
})

describe('an invalid value returned by a callback', () => {
  const faults: readonly [fault: string, options: object, error: object][] = [
    ['an empty key', { key: () => '' }, { name: 'TypeError', code: 'SLUICE_INVALID_KEY', option: 'key' }],
    ['a key that is not a string', { key: () => 5 }, { name: 'TypeError', code: 'SLUICE_INVALID_KEY' }],
    ['no key', { key: () => undefined }, { name: 'TypeError', code: 'SLUICE_INVALID_KEY' }],
    ['a cost of 0.5', { cost: () => 0.5 }, { name: 'RangeError', code: 'SLUICE_INVALID_COST' }],
    ['a negative cost', { cost: () => -1 }, { name: 'RangeError', code: 'SLUICE_INVALID_COST' }],
    [
      'a cost as a string',
      { cost: () => '1' },
      { name: 'TypeError', code: 'SLUICE_INVALID_COST', option: 'cost' },
    ],
  ]

  test.each(faults)('%s is thrown, and charges nothing', (_, options, error) => {
    const { limiter } = setUp()
    const action = vi.fn()
    expect(thrownBy(limited(limiter, options)(action))).toMatchObject(error)
    expect(action).not.toHaveBeenCalled()
    expect(limiter.stats()).toMatchObject({ granted: 0, refused: 0, keys: 0 })
  })

  test.each(faults)('%s rejects if the function is async, and charges nothing', async (_, options, error) => {
    const { limiter } = setUp()
    const action = vi.fn()
    expect(await rejectionOf(limited(limiter, options)(async () => action()))).toMatchObject(error)
    expect(action).not.toHaveBeenCalled()
    expect(limiter.stats()).toMatchObject({ granted: 0, refused: 0, keys: 0 })
  })

  test('an invalid signal rejects, and charges nothing', async () => {
    const { limiter } = setUp()
    const action = vi.fn()
    expect(await rejectionOf(limited(limiter, { signal: () => ({}) as never })(action))).toMatchObject({
      name: 'TypeError',
      code: 'SLUICE_INVALID_OPTION',
      option: 'signal',
    })
    expect(action).not.toHaveBeenCalled()
    expect(limiter.stats()).toMatchObject({ granted: 0, keys: 0 })
  })

  test.each(['key', 'cost', 'signal'])(
    'an error thrown by %s reaches the caller, and nothing is charged',
    async option => {
      const { limiter } = setUp()
      const failure = new Error('no user')
      const failing = () => {
        throw failure
      }
      const action = vi.fn()
      const call = limited(limiter, { maxWait: 0, [option]: failing })(action)
      expect(await rejectionOf(call)).toBe(failure)
      expect(action).not.toHaveBeenCalled()
      expect(limiter.stats()).toMatchObject({ granted: 0, keys: 0 })
    },
  )
})

describe('as a method decorator', () => {
  const source = `
    class Mailer {
      sent = []
      @limited(limiter, { key: to => to })
      send(to, text) {
        this.sent.push(to + ': ' + text)
        return this.sent.length
      }
      @limited(limiter, { key: 'all', maxWait: '30s' })
      async sendAll(to) {
        return this.sent.push(...to)
      }
      @limited(limiter, { key: 'static', cost: 2 })
      static describe() {
        return this.name
      }
      @limited(limiter, { key: 'private', cost: 2 })
      #secret() {
        return this.sent
      }
      secret() {
        return this.#secret()
      }
    }`

  interface Mailer {
    send(to: string, text: string): number
    sendAll(to: readonly string[]): Promise<number>
    secret(): readonly string[]
  }

  /** The class compiled by tsc, because vitest does not compile decorators and Node does not support them. */
  function decorated() {
    const { clock, limiter, remaining } = setUp()
    const script = typescript.transpile(source, { target: typescript.ScriptTarget.ES2022 })
    const make = runInThisContext(`(limited, limiter) => { ${script}\nreturn Mailer }`)
    const Mailer = make(limited, limiter) as (new () => Mailer) & { describe(): string }
    return { clock, remaining, Mailer }
  }

  test('limits a method, and passes on its object and arguments', () => {
    const { Mailer } = decorated()
    const mailer = new Mailer()
    expect([mailer.send('ann', 'hello'), mailer.send('ann', 'bye')]).toEqual([1, 2])
    expect(thrownBy(() => mailer.send('ann', 'again'))).toMatchObject({ limiter: 'two', key: 'ann' })
    expect(mailer.secret()).toEqual(['ann: hello', 'ann: bye'])
  })

  test('shares the limit between the objects of a class', () => {
    const { Mailer, remaining } = decorated()
    expect([new Mailer().send('ann', 'hello'), new Mailer().send('ann', 'hello')]).toEqual([1, 1])
    expect(remaining('ann')).toBe(0)
    expect(thrownBy(() => new Mailer().send('ann', 'hello'))).toBeInstanceOf(RateLimitedError)
  })

  test('limits an async method, which waits', async () => {
    const { clock, Mailer } = decorated()
    const mailer = new Mailer()
    await Promise.all([mailer.sendAll(['ann', 'bob']), mailer.sendAll([])])
    const third = mailer.sendAll(['cem'])
    const fourth = rejectionOf(() => mailer.sendAll(['dan']))
    clock.advance('30s')
    expect(await third).toBe(3)
    expect(await fourth).toMatchObject({ key: 'all' })
    expect(mailer.secret()).toEqual(['ann', 'bob', 'cem'])
  })

  test('limits static and private methods', () => {
    const { Mailer } = decorated()
    expect(Mailer.describe()).toBe('Mailer')
    expect(thrownBy(() => Mailer.describe())).toMatchObject({ key: 'static' })
    const mailer = new Mailer()
    expect(mailer.secret()).toEqual([])
    expect(thrownBy(() => mailer.secret())).toMatchObject({ key: 'private' })
  })

  test('keeps the name of the method', () => {
    expect(decorated().Mailer.prototype.send.name).toBe('send')
  })
})
