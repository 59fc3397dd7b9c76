import type { QuotaUnit } from '@sluice/core/http'
import type { PolicyReport } from '../../packages/core/src/http/types.js'

const UNITS: readonly string[] = ['requests', 'content-bytes', 'concurrent-requests'] satisfies QuotaUnit[]

/**
 * A policy in the notation of the conformance table: `name quota/window unit r<remaining> reset !wait`, in milliseconds.
 * `!` means violated, with the wait; `–` is for what is absent, `∞` for never.
 *
 *     burst 100/60000 r98 58900       allows, 98 left, more in 58.9 s
 *     burst 100/60000 r0 !2500        refuses; this request would pass in 2.5 s
 */
export function policy(text: string): PolicyReport {
  const [name = '', rate = '', ...parts] = text.split(' ')
  const [quota = '', window = ''] = rate.split('/')
  let remaining = 0
  let resetMs: number | undefined
  let waitMs: number | undefined
  let violated = false
  let unit: QuotaUnit | undefined
  for (const part of parts) {
    if (UNITS.includes(part)) unit = part as QuotaUnit
    else if (part.startsWith('r')) remaining = figure(part.slice(1)) ?? 0
    else if (part.startsWith('!')) [violated, waitMs] = [true, figure(part.slice(1))]
    else resetMs = figure(part)
  }
  return {
    name,
    limit: figure(quota) as number,
    windowMs: figure(window),
    remaining,
    resetMs,
    violated,
    waitMs,
    unit,
  }
}

function figure(text: string): number | undefined {
  if (text === '–') return undefined
  return Number(text.replace('−', '-').replace('∞', 'Infinity'))
}
