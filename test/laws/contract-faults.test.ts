import assert from 'node:assert/strict'
import { join } from 'node:path'
import {
  type Algorithm,
  type AsyncStore,
  fixedWindow,
  type Ledger,
  memoryStore,
  type SyncStore,
  unlimited,
} from '@sluice/core'
import { guarded } from '@sluice/core/store'
import { algorithmContract, type ContractTools, storeContract, type Unreachable } from '@sluice/core/testing'
import { describe, expect, test } from 'vitest'
import { laterLedger } from '../support/later-ledger.js'
import { run } from '../support/process.js'

/*
 * The contract suites find mistakes: algorithms and stores with one deliberate mistake each run through them, and the
 * tests that fail are compared with those that are named after the mistake.
 */

/** The names of the tests of a suite that fail, without the name of what is tested. */
async function failures(declare: (tools: ContractTools) => void): Promise<string[]> {
  const tests: (readonly [name: string, run: () => void | Promise<void>])[] = []
  declare({ test: (...declared) => tests.push(declared), assert })
  assert.ok(tests.length > 5)
  const failed: string[] = []
  for (const [name, run] of tests) {
    try {
      await run()
    } catch {
      failed.push(name.replace('it: ', ''))
    }
  }
  return failed
}

function failuresOf(algorithms: readonly Algorithm[], unreachable: readonly Unreachable[] = []) {
  return failures(tools => algorithmContract({ name: 'it', algorithms, unreachable, runs: 100 }, tools))
}

function failuresOfStore(open: () => SyncStore | AsyncStore) {
  const algorithms = { fixedWindow: [7, 4, 11].map(limit => fixedWindow({ limit, window: 20 })) }
  return failures(tools => storeContract({ name: 'it', open, algorithms, sequences: 10 }, tools))
}

const WINDOWS = [3, 7, 20].map(limit => fixedWindow({ limit, window: 10 }))

/** What an algorithm does otherwise than the right one. */
type Mistake<T> = (right: T) => Partial<T>

function mistaken<T extends object>(right: T, mistake: Mistake<T>): T {
  const wrong: object = mistake(right)
  return new Proxy(right, {
    get(_, name) {
      const value: unknown = Reflect.get(name in wrong ? wrong : right, name)
      return typeof value === 'function' ? value.bind(right) : value
    },
  })
}

type Step = Parameters<Algorithm['step']>
type Decision = ReturnType<Algorithm['step']>

/** Changes decisions, or does something else wrong after them. */
function deciding(
  change: (decision: Decision, right: Algorithm, ...step: Step) => Figures | undefined,
): Mistake<Algorithm> {
  return right => ({
    step: (...step) => {
      const decision = right.step(...step)
      const changed = change(decision, right, ...step)
      if (changed === undefined) return decision
      const { waitUs, retryAfterUs, used, endsInUs } = { ...figuresOf(decision), ...changed }
      return (right.read as NonNullable<Algorithm['read']>)(waitUs, retryAfterUs, [used, endsInUs])
    },
  })
}

/** The figures of a decision of `fixedWindow`. */
interface Figures {
  readonly waitUs?: number
  readonly retryAfterUs?: number
  readonly used?: number
}

function figuresOf({ waitMs, retryAfterMs, limit, balance, refillAfterMs }: Decision) {
  const [waitUs = 0, retryAfterUs = 0, endsInUs = 0] = [waitMs, retryAfterMs, refillAfterMs].map(ms =>
    Math.round(ms * 1000),
  )
  return { waitUs, retryAfterUs, used: limit - balance, endsInUs }
}

const [ANY] = WINDOWS as [Algorithm]

describe('algorithmContract', () => {
  test('finds nothing wrong with a right algorithm', async () => {
    expect(await failuresOf(WINDOWS)).toEqual([])
  })

  test.each<[mistake: string, Mistake<Algorithm>, caughtBy: string]>([
    [
      'charges for a refusal',
      deciding(({ allowed }, _right, state, at) => {
        if (!allowed) (state[at + 1] as number)++
      }),
      'a refusal changes nothing',
    ],
    [
      'charges for a peek',
      deciding(({ allowed }, _right, state, at, _nowUs, cost, _maxWaitUs, commit) => {
        if (allowed && !commit && cost > 0) (state[at + 1] as number)++
      }),
      'a peek and a request of cost 0 change nothing, and cost 0 is always granted',
    ],
    [
      'states a retryAfter one microsecond early',
      deciding(decision =>
        decision.allowed ? {} : { retryAfterUs: Math.max(1, figuresOf(decision).retryAfterUs - 1) },
      ),
      'a refused request is refused until its retryAfter and granted at it, to the microsecond',
    ],
    [
      'states a wait one microsecond late',
      deciding(decision => (decision.allowed ? {} : { waitUs: figuresOf(decision).waitUs + 1 })),
      'a refused request is granted at once after its wait, and not before',
    ],
    [
      'states one permit too many in remaining',
      deciding(decision => ({ used: figuresOf(decision).used - 1 })),
      'exactly `remaining` more single permits pass now',
    ],
    [
      'writes next to its lanes',
      deciding((_, right, state, at) => {
        state[at + right.lanes] = 0
      }),
      'only the lanes of the key are written, wherever they start',
    ],
    [
      'ignores where its lanes start',
      right => ({ step: (state, _at, ...others) => right.step(state, 0, ...others) }),
      'only the lanes of the key are written, wherever they start',
    ],
    [
      'gives back more than was taken',
      right => ({ refund: (...args) => right.refund(...args) + 1 }),
      'a booking gives back at most its cost, and the balance grows by that',
    ],
    [
      'states that it rests a microsecond early',
      right => ({ restsAt: (...args) => right.restsAt(...args) - 1 }),
      'a key rests after resetAfter, and then decides like a key never seen',
    ],
    [
      'states a load of 1 too early',
      right => ({ load: (...args) => Math.min(1, right.load(...args) * 1.5) }),
      '`load` is a share of the limit, and 1 exactly while a single permit would be refused',
    ],
    [
      'forgets what was used when its options change',
      () => ({ adopt: (state, at) => void state.fill(0, at, at + 2) }),
      'changing to equal options changes no decision',
    ],
  ])('catches an algorithm that %s', async (_, mistake, caughtBy) => {
    const algorithms = WINDOWS.map(right => mistaken(right, mistake))
    expect(await failuresOf(algorithms)).toContain(caughtBy)
  })

  test('fails where a law had nothing to test', async () => {
    expect(await failuresOf([unlimited()])).toContain('a refusal changes nothing')
  })

  test('fails where what is said to be unreachable is reached', async () => {
    expect(await failuresOf([ANY], ['refusal'])).toEqual(['a refusal changes nothing'])
  })

  test('names the seed that repeats a failure', () => {
    let message = ''
    const collect: ContractTools['test'] = (_, run) => {
      try {
        run()
      } catch (error) {
        message ||= (error as Error).message
      }
    }
    const wrong = mistaken(ANY, right => ({ load: (...args) => right.load(...args) + 2 }))
    algorithmContract({ name: 'it', algorithms: [wrong], seed: 42 }, { test: collect, assert })
    expect(message).toMatch(/^seed 42: load is [23]/)
  })
})

/** A store in memory whose ledgers have a mistake. */
function storeThat(mistake: Mistake<Ledger<false>>): () => SyncStore {
  return () => {
    const memory = memoryStore()
    return { async: false, open: spec => mistaken<Ledger<false>>(memory.open(spec), mistake) }
  }
}

/** Calls a ledger with other keys. */
function renaming(renamed: (key: string) => string): Mistake<Ledger<false>> {
  return right => ({
    decide: (key, ...others) => right.decide(renamed(key), ...others),
    book: (key, ...others) => right.book(renamed(key), ...others),
    reset: key => right.reset(renamed(key)),
  })
}

/** Looks first and takes later: what others take in between is not seen. */
function racing(): AsyncStore {
  const memory = memoryStore()
  return {
    async: true,
    open(spec) {
      const ledger = memory.open(spec)
      const right = laterLedger(ledger, async act => act())
      return guarded(
        {
          ...right,
          async decide(...call) {
            const [key, cost, maxWaitUs, commit] = call
            const looked = ledger.decide(key, cost, maxWaitUs, false)
            await undefined
            const decision = ledger.decide(key, cost, maxWaitUs, commit)
            return looked.allowed && !decision.allowed ? looked : decision
          },
        },
        spec,
      )
    },
  }
}

/** Charges the limits that grant, even if another one refuses. */
function halfCharging(): AsyncStore {
  const memory = memoryStore()
  const together: Ledger<true>['together'] = {
    decide: async (asks, commit) =>
      Promise.all(
        asks.map(async ({ ledger, key, cost }) => ({ decision: await ledger.decide(key, cost, 0, commit) })),
      ),
  }
  return {
    async: true,
    open: spec => guarded({ ...laterLedger(memory.open(spec), async act => act()), together }, spec),
  }
}

/** Keeps the keys of all limiters together. */
function unnamed(): SyncStore {
  const memory = memoryStore()
  let shared: Ledger<false> | undefined
  return {
    async: false,
    open(spec) {
      shared ??= memory.open(spec)
      return shared
    },
  }
}

const AS_IN_MEMORY = 'fixedWindow answers any sequence of calls as in memory'
const KEYS_APART = 'two keys never share permits, whatever they are called'

describe('storeContract', () => {
  test('finds nothing wrong with a right store', async () => {
    expect(await failuresOfStore(() => memoryStore())).toEqual([])
  })

  test.each<[mistake: string, open: () => SyncStore | AsyncStore, caughtBy: string[]]>([
    [
      'loses a key now and then',
      storeThat(right => {
        let calls = 0
        return {
          decide(key, ...others) {
            if (++calls % 7 === 0) right.reset(key)
            return right.decide(key, ...others)
          },
        }
      }),
      [AS_IN_MEMORY],
    ],
    ['takes keys of other case for the same', storeThat(renaming(key => key.toLowerCase())), [KEYS_APART]],
    ['cuts keys at a NUL', storeThat(renaming(key => key.split('\0')[0] || 'none')), [KEYS_APART]],
    [
      'takes lone surrogates for the same',
      storeThat(renaming(key => Buffer.from(key).toString())),
      [KEYS_APART],
    ],
    [
      'takes equal keys of two limiters for the same',
      unnamed,
      ['two limiters of different names never share permits'],
    ],
    [
      'grants too much to calls made at once',
      racing,
      ['fixedWindow grants calls made at once as many permits as calls made in turn'],
    ],
    ['charges one limit of two', halfCharging, ['several limits are charged all or none']],
    [
      'does not reset',
      storeThat(() => ({ reset() {} })),
      [AS_IN_MEMORY, 'a key that was reset is like a key never seen'],
    ],
    [
      'gives back a booking twice',
      storeThat(right => ({
        refund: (key, booking) => right.refund(key, booking) + right.refund(key, booking),
      })),
      [AS_IN_MEMORY],
    ],
    ['ignores blocks', storeThat(() => ({ block() {} })), [AS_IN_MEMORY]],
    ['ignores changes of options', storeThat(() => ({ update() {} })), [AS_IN_MEMORY]],
  ])('catches a store that %s', async (_, open, caughtBy) => {
    expect(await failuresOfStore(open)).toEqual(expect.arrayContaining(caughtBy))
  })
})

test('both suites run with node:test', async () => {
  const file = join(import.meta.dirname, '../support/suites-in-node-test.js')
  const output = await run(
    'node',
    ['--import', 'tsx', '--test', '--test-reporter=tap', file],
    import.meta.dirname,
  )
  expect(output).toMatch(/^ok \d+ - fixedWindow: a refusal changes nothing$/m)
  expect(output).toMatch(/^ok \d+ - memoryStore: several limits are charged all or none$/m)
  expect(output).toMatch(/^# fail 0$/m)
})
