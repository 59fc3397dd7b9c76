// A job that sends items to an API that is limited to 10 requests a second.
import { setTimeout as sleep } from 'node:timers/promises'
import { createLimiter, limited, tokenBucket } from '@sluice/core'
import { startUpstream } from './upstream.js'

const upstream = await startUpstream()
const startedMs = performance.now()

// Our burst of 5 is more than the API allows, so the job will get a 429 and has to handle it.
const api = createLimiter(tokenBucket({ limit: 10, window: '1s', burst: 5 }), {
  name: 'api',
  maxQueuePerKey: 1000,
})

// Every call waits for a permit. A 429 drains the limiter, so that later calls wait for new permits.
const send = limited(api, {
  key: 'items',
  maxWait: '30s',
  drainOn: (/** @type {Response} */ response, failed) => !failed && response.status === 429,
})(async (/** @type {number} */ item) => fetch(`${upstream.url}/${item}`))

/** @param {number} item */
async function deliver(item) {
  for (;;) {
    const response = await send(item)
    log(`item ${item}: ${response.status}`)
    if (response.status !== 429) return
    await sleep(Number(response.headers.get('Retry-After')) * 1000)
  }
}

await Promise.all(Array.from({ length: 15 }, (_, item) => deliver(item)))

// The same limiter without the wrapper. A cost of 10 is above the burst and never granted. A cost of 2 can be granted.
const batch = api.tryAcquire('items', { cost: 10 })
log(`a batch of 10: ${batch.allowed ? 'sent' : 'never'}, because ${batch.limit} at once is the most`)
const { waitMs } = await api.acquire('items', { cost: 2, maxWait: '10s' })
log(`a batch of 2 after a wait of ${Math.round(waitMs)} ms`)

const { granted, waited } = api.stats()
log(`done: ${granted} grants, ${waited} of them after a wait`)
upstream.close()

/** @param {string} text */
function log(text) {
  console.log(`${String(Math.round(performance.now() - startedMs)).padStart(5)} ms  ${text}`)
}
