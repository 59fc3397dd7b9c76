import type { Case, Step } from './traces.js'

/*
 * A rule describes a behaviour of an original system that we do not copy: how to find it in a trace, until when the
 * figures of both systems differ because of it, and what we do instead. A rule names no case, so it also applies to
 * traces recorded elsewhere. A difference that no rule explains fails the test.
 */

/** A behaviour of an original system that we do not copy. */
export interface Rule<S extends Step = Step> {
  readonly reason: string
  /** Whether the original has the behaviour at this step. */
  shows(step: S, past: Past<S>): boolean
  /** Whether both systems agree again before this step. Without it they differ for the rest of the case. */
  agreesAgain?(step: S, past: Past<S>, since: Past<S>): boolean
  /** Whether we copy the behaviour on Redis after all; default false. */
  readonly copiedOnRedis?: boolean
  /** Tests what we do instead. Times are milliseconds. */
  instead(): void | Promise<void>
}

/** The state of a case before a step. */
export interface Past<S extends Step = Step> {
  readonly config: object
  readonly steps: readonly S[]
  /** The previous step; undefined at the first. */
  readonly last: S | undefined
}

/** For a behaviour that changes nothing after its step. */
export const atOnce = (): boolean => true

/** A step of a case that is not replayed, and the rule that explains why. */
export interface Unplayed {
  readonly index: number
  readonly rule: Rule
}

/** The steps of a case that the rules explain. */
export function unplayedSteps({ config, steps }: Case, rules: readonly Rule[]): readonly Unplayed[] {
  const unplayed: Unplayed[] = []
  let open: { readonly rule: Rule; readonly since: Past } | undefined
  for (const [index, step] of steps.entries()) {
    const past = { config, steps: steps.slice(0, index), last: steps[index - 1] }
    if (open?.rule.agreesAgain?.(step, past, open.since)) open = undefined
    const rule = open === undefined ? rules.find(rule => rule.shows(step, past)) : undefined
    if (rule !== undefined) open = { rule, since: past }
    if (open !== undefined) unplayed.push({ index, rule: open.rule })
  }
  return unplayed
}

/** Whether the original answers a step with an error. */
export function isError({ result }: Step): boolean {
  return typeof result === 'object' && result !== null && 'error' in result
}

/** How an algorithm with a limit of 0 answers. */
export const NEVER = { allowed: false, waitMs: Infinity, retryAfterMs: Infinity }
