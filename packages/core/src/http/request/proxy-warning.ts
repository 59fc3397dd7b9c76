import { warnOnce } from '../../shared/warnings.js'
import type { Exchange } from '../options.js'
import type { Host, Message } from '../types.js'

/**
 * Returns a function to call with each request whose address comes from the framework. At the first request with a
 * forwarded header it warns if the framework believes every such header, or none.
 */
export function proxyWarning<X extends Exchange>(host: Host<X>): (request: X[0], message: Message) => void {
  let isChecked = false
  return (request, { headers }) => {
    if (isChecked || (headers['x-forwarded-for'] === undefined && headers.forwarded === undefined)) return
    isChecked = true
    const trusts = host.trusts(request)
    if (trusts === 'anybody')
      warnOnce(
        'SLUICE_TRUSTS_ANYBODY',
        `The framework believes every forwarded header, so a client can choose its own key. ${REMEDY}`,
      )
    else if (trusts === 'nobody')
      warnOnce(
        'SLUICE_PROXY_NOT_TRUSTED',
        `A request has a forwarded header, but no proxy is trusted: all its clients share one limit. ${REMEDY}`,
      )
  }
}

const REMEDY = "Name your proxies in trustedProxies, or in the framework's trust setting."
