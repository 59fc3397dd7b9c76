import {
  type AsyncStore,
  createLimiter,
  type Ledger,
  type LedgerSpec,
  memoryStore,
  tokenBucket,
} from '@sluice/core'
import { guarded } from '@sluice/core/store'
import { rateLimit } from '@sluice/express'
import { describe, expect, test } from 'vitest'
import { laterLedger } from '../support/later-ledger.js'
import { unhandledDuring } from '../support/scripted-store.js'

const BUCKET = tokenBucket({ limit: 2, window: '1s' })

/** A store with the given `open`. */
function storeWith(open: (spec: LedgerSpec) => unknown): AsyncStore {
  return { async: true, open: open as AsyncStore['open'] }
}

const INVALID: readonly (readonly [string, (spec: LedgerSpec) => unknown])[] = [
  ['is an async function', async spec => guarded(unguarded(spec), spec)],
  ['rejects', () => Promise.reject(new Error('the server is down'))],
  ['returns nothing', () => {}],
  ['returns null', () => null],
  ['returns an object that is not a ledger', () => ({})],
]

function unguarded(spec: LedgerSpec): Ledger<true> {
  return laterLedger(memoryStore().open(spec), async act => act())
}

describe('a store whose open', () => {
  test.each(INVALID)('%s makes createLimiter throw', async (_, open) => {
    const store = storeWith(open)
    const expected = expect.objectContaining({ code: 'SLUICE_INVALID_OPTION', option: 'store' })
    const unhandled = await unhandledDuring(async () => {
      expect(() => createLimiter(BUCKET, { store })).toThrow(expected)
      expect(() => createLimiter(BUCKET, { store })).toThrow(TypeError)
      expect(() => rateLimit({ limit: 1, window: '1s', name: 'easy', store })).toThrow(expected)
    })
    expect(unhandled).toEqual([])
  })

  test.each([[new Error('no connection')], ['no connection'], [undefined]])(
    'throws %o makes createLimiter throw SLUICE_STORE_ERROR',
    cause => {
      const store = storeWith(() => {
        throw cause
      })
      expect(() => createLimiter(BUCKET, { store })).toThrow(
        expect.objectContaining({ code: 'SLUICE_STORE_ERROR', option: 'store', cause }),
      )
    },
  )

  test('throws an error with its own code makes createLimiter throw that error', () => {
    const error = Object.assign(new Error('taken'), { code: 'SLUICE_NAME_TAKEN' })
    const store = storeWith(() => {
      throw error
    })
    expect(() => createLimiter(BUCKET, { store })).toThrow(error)
  })

  test('returns an asynchronous ledger without guarded() makes createLimiter throw an error that names guarded()', () => {
    const store = storeWith(unguarded)
    expect(() => createLimiter(BUCKET, { store })).toThrow(/guarded\(ledger, spec\) of @sluice\/core\/store/)
    expect(() => createLimiter(BUCKET, { store })).toThrow(
      expect.objectContaining({ code: 'SLUICE_INVALID_OPTION', option: 'store' }),
    )
  })

  test('returns a guarded ledger works', async () => {
    const store = storeWith(spec => guarded(unguarded(spec), spec))
    const limiter = createLimiter(BUCKET, { store })
    const allowed: boolean[] = []
    for (let ask = 0; ask < 3; ask++) allowed.push((await limiter.tryAcquire('ann')).allowed)
    expect(allowed).toEqual([true, true, false])
  })
})

describe('a guarded ledger', () => {
  test('opened without a limiter throws store errors, and does not report them', async () => {
    const spec = { name: 'alone', algorithm: BUCKET, clock: { nowUs: () => 0 } }
    const ledger = guarded(
      laterLedger(memoryStore().open(spec), () => Promise.reject(new Error('down'))),
      spec,
    )
    await expect(ledger.decide('ann', 1, 0, true)).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
  })
})
