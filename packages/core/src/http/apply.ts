import type { ServerResponse } from 'node:http'
import { type MaybePromise, proceed } from '../answer.js'
import { dropOnRedirect, sendRefusal, writeFields } from './answering.js'
import type { Refusal } from './options.js'
import { refusedError } from './refused-error.js'
import type { Verdict } from './verdicts.js'

/** How refusals are answered: by the app, by its error handling, or as usual. */
export interface Refusing {
  readonly onRefused: ((refusal: Refusal) => unknown) | undefined
  readonly throws: boolean | undefined
}

/** Puts a verdict into effect on a response of node:http. The answer says whether the request goes on. */
export function applyVerdict(
  verdict: Verdict,
  response: ServerResponse,
  { onRefused, throws }: Refusing,
): MaybePromise<boolean> {
  if (verdict.outcome === 'abandoned') return false
  if (verdict.outcome === 'skipped') return true
  if (response.headersSent) return applyLate(verdict.outcome, response)
  writeFields(verdict.fields, response)
  dropOnRedirect(verdict.dropsOnRedirect, response)
  if (verdict.outcome === 'allowed') return true

  const { refusal, fields } = verdict
  response.statusCode = refusal.status
  if (throws) throw refusedError(refusal, fields, response)
  return proceed(onRefused?.(refusal), () => {
    sendRefusal(refusal, response)
    return false
  })
}

/** Somebody began to answer while the key was looked for: no field can be said any more, and no refusal. */
function applyLate(outcome: 'allowed' | 'refused', response: ServerResponse): boolean {
  if (response.writableEnded) return false
  if (outcome === 'refused') response.destroy()
  return outcome === 'allowed'
}
