import { createLimiter, tokenBucket } from '@sluice/core'
import { addressKey } from '@sluice/core/http'
import { rateLimit } from '@sluice/fastify'
import Fastify from 'fastify'

// Each plan has `limit` permits per `window`, with a burst of `burst`. Null means no limit. A missing plan is an
// error and not a plan without a limit.
const plans = {
  free: createLimiter(tokenBucket({ limit: 60, window: '1h', burst: 10 }), { name: 'free' }),
  pro: createLimiter(tokenBucket({ limit: 6000, window: '1h', burst: 100 }), { name: 'pro' }),
  unlimited: null,
}

/** @typedef {{ id: string | null, plan: keyof typeof plans }} Customer */

/** @type {Map<unknown, Customer>} In a real app, these are in a database. */
const customers = new Map([
  ['key-of-ann', { id: 'ann', plan: 'free' }],
  ['key-of-bob', { id: 'bob', plan: 'pro' }],
  ['key-of-cleo', { id: 'cleo', plan: 'unlimited' }],
  // Our own health checker. With the key null, no limit applies.
  ['key-of-the-health-checker', { id: null, plan: 'unlimited' }],
])

/**
 * A request without a known API key has the free plan, with its address as the key.
 * @param {import('fastify').FastifyRequest} request
 * @returns {Customer}
 */
function customerOf({ headers, ip }) {
  return customers.get(headers['x-api-key']) ?? { id: `guest ${addressKey(ip)}`, plan: 'free' }
}

const refusals = { free: 0, pro: 0, unlimited: 0 }

/** @type {Pick<import('@sluice/fastify').RouteLimitOptions, 'key' | 'onDecision'>} */
const perCustomer = {
  key: request => customerOf(request).id,
  onDecision: (request, { refused }) => {
    if (refused) refusals[customerOf(request).plan]++
  },
}

const app = Fastify()

// The cost is the `cost` in the config of the route, otherwise 5 for a POST and 1 for other requests.
await app.register(rateLimit, {
  ...perCustomer,
  limiter: request => plans[customerOf(request).plan],
  cost: ({ method, routeOptions }) => Object(routeOptions.config).cost ?? (method === 'POST' ? 5 : 1),
})

app.get('/items', async () => ['a lamp', 'a chair'])
app.post('/items', async (_, reply) => reply.code(201).send('a new item'))
app.get('/search', { config: { cost: 3 } }, async () => ['a lamp'])
app.get('/refusals', { config: { rateLimit: false } }, async () => refusals)

// Exports are expensive: 2 per minute for all formats together, on every plan and in addition to its limit.
await app.register(async exports => {
  await exports.register(rateLimit, { ...perCustomer, limit: 2, window: '1m', name: 'exports' })
  exports.get('/exports/csv', async () => 'lamp,chair\n')
  exports.get('/exports/xml', async () => '<lamp/><chair/>\n')
})

const url = await app.listen({ port: Number(process.env.PORT ?? 3000), host: '127.0.0.1' })
console.log(`listening on ${url}`)
