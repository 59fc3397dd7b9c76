import { anyVerbScript } from './any-verb.lua.js'
import { decideScript } from './decide.lua.js'
import { decideAllScript } from './decide-all.lua.js'
import type { Script } from './script.js'
import type { Twin } from './twin.js'
import { numberOf, TWINS } from './twins.js'

/*
 * The text of a script depends on the algorithms in it only, never on options: a server compiles it once for all limiters.
 */

/** The scripts of one algorithm. */
export interface Scripts {
  readonly decide: Script
  readonly anyVerb: Script
}

export function scriptsOf(twin: Twin): Scripts {
  let scripts = cache.get(twin)
  if (scripts === undefined) {
    scripts = { decide: decideScript(twin), anyVerb: anyVerbScript(twin) }
    cache.set(twin, scripts)
  }
  return scripts
}

/** The script that decides over several limiters at once, for the set of these algorithms. */
export function jointScriptOf(twins: readonly Twin[], converts: boolean): Script {
  let id = converts ? 1 : 0
  for (const twin of twins) id |= 1 << numberOf(twin)
  let script = jointCache.get(id)
  if (script === undefined) {
    script = decideAllScript(
      TWINS.filter(twin => twins.includes(twin)),
      converts,
    )
    jointCache.set(id, script)
  }
  return script
}

const cache = new Map<Twin, Scripts>()
const jointCache = new Map<number, Script>()
