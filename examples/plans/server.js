import { createLimiter, tokenBucket } from '@sluice/core'
import { addressKey } from '@sluice/core/http'
import { rateLimit } from '@sluice/fastify'
import Fastify from 'fastify'

// What a plan grants: `limit` permits per `window`, of which `burst` at once. Null is no limit, and a plan that is missing
// here is an error, not a plan without a limit.
const plans = {
  free: createLimiter(tokenBucket({ limit: 60, window: '1h', burst: 10 }), { name: 'free' }),
  pro: createLimiter(tokenBucket({ limit: 6000, window: '1h', burst: 100 }), { name: 'pro' }),
  unlimited: null,
}

/** @typedef {{ id: string | null, plan: keyof typeof plans }} Customer */

/** @type {Map<unknown, Customer>} Yours are in a database. */
const customers = new Map([
  ['key-of-ann', { id: 'ann', plan: 'free' }],
  ['key-of-bob', { id: 'bob', plan: 'pro' }],
  ['key-of-cleo', { id: 'cleo', plan: 'unlimited' }],
  // Ours: without an id it is not limited by anything.
  ['key-of-the-health-checker', { id: null, plan: 'unlimited' }],
])

/**
 * Guests have the free plan, by their address.
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

// Each request costs what its route says, and one that writes costs 5.
await app.register(rateLimit, {
  ...perCustomer,
  limiter: request => plans[customerOf(request).plan],
  cost: ({ method, routeOptions }) => Object(routeOptions.config).cost ?? (method === 'POST' ? 5 : 1),
})

app.get('/items', async () => ['a lamp', 'a chair'])
app.post('/items', async (_, reply) => reply.code(201).send('a new item'))
app.get('/search', { config: { cost: 3 } }, async () => ['a lamp'])
app.get('/refusals', { config: { rateLimit: false } }, async () => refusals)

// Exports are much work for us: 2 a minute, whichever they are, on every plan and beside its limit.
await app.register(async exports => {
  await exports.register(rateLimit, { ...perCustomer, limit: 2, window: '1m', name: 'exports' })
  exports.get('/exports/csv', async () => 'lamp,chair\n')
  exports.get('/exports/xml', async () => '<lamp/><chair/>\n')
})

const url = await app.listen({ port: Number(process.env.PORT ?? 3000), host: '127.0.0.1' })
console.log(`listening on ${url}`)
