import type { ServerResponse } from 'node:http'
import type { Decision } from '../algorithms/decision.js'
import { andThen, type MaybePromise } from '../shared/maybe-promise.js'
import { createGuard } from './guard.js'
import type { HttpOptions, Refusal } from './options.js'
import { dropOnRedirect } from './response/redirect.js'
import { refusedError } from './response/refused-error.js'
import { sendRefusal, writeFields } from './response/write-fields.js'
import type { Host, Verdict } from './types.js'

/** A request on which the decision is stored. */
interface LimitedRequest {
  rateLimit?: Decision | undefined
}

/**
 * Limits requests of a framework whose responses are those of node:http. The function that it returns writes header fields
 * and sends refusals, and says whether the request continues. Throws for invalid options, as `rateLimit` does.
 */
export function limitOn<Request extends LimitedRequest, Response extends ServerResponse>(
  options: HttpOptions<[Request, Response]>,
  host: Host<[Request, Response]>,
): (request: Request, response: Response) => MaybePromise<boolean> {
  const guard = createGuard(options, host)
  const { onRefused, throws = false } = options
  return (request, response) => {
    if (response.headersSent) return !response.writableEnded
    return andThen(guard(request, response), verdict => {
      if ('decision' in verdict) request.rateLimit = verdict.decision
      return apply(verdict, response, throws, onRefused && (refusal => onRefused(request, response, refusal)))
    })
  }
}

function apply(
  verdict: Verdict,
  response: ServerResponse,
  throws: boolean,
  onRefused: ((refusal: Refusal) => unknown) | undefined,
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
  return andThen(onRefused?.(refusal), () => {
    sendRefusal(refusal, response)
    return false
  })
}

/** For a response that other code began during an asynchronous decision: too late for header fields and for a refusal. */
function applyLate(outcome: 'allowed' | 'refused', response: ServerResponse): boolean {
  if (response.writableEnded) return false
  if (outcome === 'refused') response.destroy()
  return outcome === 'allowed'
}
