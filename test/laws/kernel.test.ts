import type { Algorithm } from '@sluice/core'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ALGORITHMS } from '../support/algorithms.js'
import { type Ask, asks, cost, gapUs, Moment, maxWaitUs } from '../support/scripts.js'

describe.each(ALGORITHMS)('the laws of one key: $name', ({ algorithm: arbitrary, counts }) => {
  const lives = fc.record({ algorithm: arbitrary, script: asks() })

  test('a refusal changes nothing', () => {
    check(fc.tuple(lives, cost(), maxWaitUs()), ([life, cost, maxWaitUs]) => {
      const moment = begin(life)
      const before = moment.state.slice()
      const decision = moment.ask({ gapUs: 0, cost, maxWaitUs })
      if (!decision.allowed) expect(moment.state).toEqual(before)
    })
  })

  test('looking and cost 0 are invisible, and cost 0 is always granted', () => {
    check(fc.tuple(lives, cost(), maxWaitUs()), ([life, cost, maxWaitUs]) => {
      const moment = begin(life)
      const before = moment.state.slice()
      moment.algorithm.step(moment.state, 0, moment.nowUs, cost, maxWaitUs, false)
      expect(moment.ask({ gapUs: 0, cost: 0, maxWaitUs })).toMatchObject({ allowed: true, waitMs: 0 })
      expect(moment.state).toEqual(before)
    })
  })

  test('looking answers what asking would', () => {
    check(fc.tuple(lives, cost(), maxWaitUs()), ([life, cost, maxWaitUs]) => {
      const moment = begin(life)
      const seen = moment.algorithm.step(moment.state, 0, moment.nowUs, cost, maxWaitUs, false)
      const { allowed, waitMs, retryAfterMs } = moment.ask({ gapUs: 0, cost, maxWaitUs })
      expect(seen).toMatchObject({ allowed, waitMs, retryAfterMs })
    })
  })

  test('refused before retryAfter, granted at it, to the microsecond', () => {
    check(fc.tuple(lives, cost(), maxWaitUs()), ([life, cost, maxWaitUs]) => {
      const moment = begin(life)
      const { allowed, retryAfterMs } = moment.wouldAnswer(cost, maxWaitUs)
      if (allowed || retryAfterMs === Infinity) return
      const retryAfterUs = Math.round(retryAfterMs * 1000)
      expect(moment.wouldAnswer(cost, maxWaitUs, retryAfterUs - 1).allowed).toBe(false)
      expect(moment.wouldAnswer(cost, maxWaitUs, retryAfterUs).allowed).toBe(true)
    })
  })

  test('a refused ask passes unaided after its wait and not before', () => {
    check(fc.tuple(lives, cost(), maxWaitUs()), ([life, cost, maxWaitUs]) => {
      const moment = begin(life)
      const { allowed, waitMs } = moment.wouldAnswer(cost, maxWaitUs)
      if (allowed || waitMs === Infinity) return
      const waitUs = Math.round(waitMs * 1000)
      expect(moment.wouldAnswer(cost, 0, waitUs - 1).allowed).toBe(false)
      expect(moment.wouldAnswer(cost, 0, waitUs).allowed).toBe(true)
    })
  })

  test('what is never granted is not granted later either', () => {
    check(fc.tuple(lives, cost(), gapUs()), ([life, cost, inUs]) => {
      const moment = begin(life)
      if (moment.wouldAnswer(cost, Infinity).retryAfterMs < Infinity) return
      expect(moment.wouldAnswer(cost, Infinity, inUs)).toMatchObject({ allowed: false, waitMs: Infinity })
    })
  })

  test(`${counts ? 'exactly' : 'at least'} \`remaining\` more single permits pass now`, () => {
    check(lives, life => {
      const moment = begin(life)
      const { remaining } = moment.wouldAnswer(0)
      if (remaining === Infinity) return
      for (let permit = 0; permit < remaining; permit++)
        expect(moment.ask({ gapUs: 0, cost: 1, maxWaitUs: 0 }).allowed).toBe(true)
      if (counts) expect(moment.ask({ gapUs: 0, cost: 1, maxWaitUs: 0 }).allowed).toBe(false)
    })
  })

  test('`remaining` grows by one after refillAfter and not before', () => {
    check(lives, life => {
      const moment = begin(life)
      const { remaining, refillAfterMs } = moment.wouldAnswer(0)
      if (refillAfterMs === 0 || refillAfterMs === Infinity) return
      const refillAfterUs = Math.round(refillAfterMs * 1000)
      expect(moment.wouldAnswer(0, 0, refillAfterUs - 1).remaining).toBe(remaining)
      expect(moment.wouldAnswer(0, 0, refillAfterUs).remaining).toBeGreaterThan(remaining)
    })
  })

  test('`remaining` is the whole part of the balance', () => {
    check(lives, life => {
      const moment = begin(life)
      const { remaining, balance, limit } = moment.wouldAnswer(0)
      expect(remaining).toBe(Math.max(0, Math.min(limit, Math.floor(balance + 1e-9))))
    })
  })

  test('a rested key decides like one never seen, and rests at resetAfter', () => {
    check(fc.tuple(lives, asks(10)), ([life, script]) => {
      const moment = begin(life)
      const restsAtUs = moment.algorithm.restsAt(moment.state, 0)
      const { resetAfterMs } = moment.wouldAnswer(0)
      expect(moment.nowUs + Math.round(resetAfterMs * 1000)).toBe(Math.max(restsAtUs, moment.nowUs))
      moment.nowUs = Math.max(moment.nowUs, restsAtUs)
      const fresh = new Moment(moment.algorithm)
      fresh.nowUs = moment.nowUs
      for (const ask of script) expect(moment.ask(ask).toJSON()).toEqual(fresh.ask(ask).toJSON())
    })
  })

  test('`load` is a share of the limit, 1 exactly while a single permit would be refused', () => {
    check(lives, life => {
      const moment = begin(life)
      const load = moment.algorithm.load(moment.state, 0, moment.nowUs)
      expect(load).toBeGreaterThanOrEqual(0)
      expect(load).toBeLessThanOrEqual(1)
      expect(load === 1).toBe(!moment.wouldAnswer(1).allowed)
    })
  })

  test('figures are numbers, waits never negative', () => {
    check(fc.tuple(lives, cost(), maxWaitUs()), ([life, cost, maxWaitUs]) => {
      const moment = begin(life)
      const { allowed, balance, ...figures } = moment.wouldAnswer(cost, maxWaitUs).toJSON()
      expect(typeof allowed).toBe('boolean')
      expect(balance).not.toBeNaN()
      for (const figure of Object.values(figures)) expect(figure).toBeGreaterThanOrEqual(0)
    })
  })

  test('an algorithm keeps to its lanes', () => {
    check(fc.tuple(arbitrary, asks()), ([algorithm, script]) => {
      const state = new Float64Array(algorithm.lanes + 2).fill(7)
      state.fill(0, 1, algorithm.lanes + 1)
      const alone = new Moment(algorithm)
      for (const ask of script) {
        const decision = alone.ask(ask)
        expect(algorithm.step(state, 1, alone.nowUs, ask.cost, ask.maxWaitUs, true).toJSON()).toEqual(
          decision.toJSON(),
        )
      }
      expect([state[0], state.at(-1)]).toEqual([7, 7])
    })
  })
})

/** Made anew for every run, because laws change the moment they look at. */
function begin({ algorithm, script }: { algorithm: Algorithm; script: Ask[] }): Moment {
  return new Moment(algorithm, script)
}

function check<T>(arbitrary: fc.Arbitrary<T>, law: (value: T) => void): void {
  fc.assert(fc.property(arbitrary, law), { numRuns: 300 })
}
