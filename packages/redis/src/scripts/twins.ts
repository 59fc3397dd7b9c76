import type { Algorithm } from '@sluice/core'
import { invalid } from '@sluice/core/store'
import { Script } from './clients.js'
import { cycleTwin } from './scripts/algorithms/cycle.lua.js'
import { fixedWindowTwin } from './scripts/algorithms/fixed-window.lua.js'
import { leakyBucketTwin } from './scripts/algorithms/leaky-bucket.lua.js'
import { slidingLogTwin } from './scripts/algorithms/sliding-log.lua.js'
import { slidingWindowTwin } from './scripts/algorithms/sliding-window.lua.js'
import { smoothBurstyTwin } from './scripts/algorithms/smooth-bursty.lua.js'
import { smoothWarmingUpTwin } from './scripts/algorithms/smooth-warming-up.lua.js'
import { tokenBucketTwin } from './scripts/algorithms/token-bucket.lua.js'
import { unlimitedTwin } from './scripts/algorithms/unlimited.lua.js'
import { wholeScript } from './scripts/any-verb.lua.js'
import { decideScript } from './scripts/decide.lua.js'
import { togetherScript } from './scripts/decide-all.lua.js'
import type { Twin } from './scripts/twin.js'

/** Every algorithm that Redis can decide by. */
const TWINS: readonly Twin[] = [
  tokenBucketTwin,
  cycleTwin,
  fixedWindowTwin,
  leakyBucketTwin,
  slidingWindowTwin,
  slidingLogTwin,
  smoothBurstyTwin,
  smoothWarmingUpTwin,
  unlimitedTwin,
]

const byName = new Map(TWINS.map(twin => [twin.name, twin]))

/** The algorithms of states on a server, by the names in their keys. */
export const STORED = TWINS.filter(twin => twin !== unlimitedTwin).map(({ name }) => name)

/** The twin of an algorithm. Throws where there is none. */
export function twinOf({ name, read }: Algorithm): Twin {
  const twin = byName.get(name)
  if (twin === undefined || read === undefined)
    throw invalid(TypeError, 'algorithm', `one of @sluice/core (${[...byName.keys()].join(', ')})`, name)
  return twin
}

/** Scripts are constant: one for each algorithm, and one for each set of algorithms that are decided together. */
export function scriptsOf(twin: Twin): { readonly decide: Script; readonly whole: Script } {
  let scripts = made.get(twin)
  if (scripts === undefined) {
    scripts = { decide: new Script(decideScript(twin)), whole: new Script(wholeScript(twin)) }
    made.set(twin, scripts)
  }
  return scripts
}

/** The twins of asks that are decided together, in the order in which their script numbers them, and that script. */
export class Company {
  readonly names: readonly string[]
  /** The short one, and the one that converts, each made when it is first used. */
  private readonly scripts = new Map<boolean, Script>()
  private readonly twins: readonly Twin[]

  constructor(twins: readonly Twin[]) {
    this.twins = twins
    this.names = twins.map(({ name }) => name)
  }

  script(converts: boolean): Script {
    let script = this.scripts.get(converts)
    if (script === undefined) {
      script = new Script(togetherScript(this.twins, converts))
      this.scripts.set(converts, script)
    }
    return script
  }
}

export function companyOf(twins: readonly Twin[]): Company {
  const distinct = [...new Set(twins)].toSorted((a, b) => (a.name < b.name ? -1 : 1))
  const names = distinct.map(({ name }) => name).join()
  let company = companies.get(names)
  if (company === undefined) {
    company = new Company(distinct)
    companies.set(names, company)
  }
  return company
}

const made = new WeakMap<Twin, { readonly decide: Script; readonly whole: Script }>()
const companies = new Map<string, Company>()
