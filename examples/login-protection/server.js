import { createLimiter, tokenBucket } from '@sluice/core'
import { addressKey } from '@sluice/core/http'
import { rateLimit } from '@sluice/express'
import express from 'express'
import { isPassword } from './accounts.js'

const app = express()

// The proxy runs on the same machine. X-Forwarded-For from any other address is ignored.
app.set('trust proxy', 'loopback')

const pairs = createLimiter(tokenBucket({ limit: 5, window: '15m' }), { name: 'account-and-address' })

const protect = rateLimit({
  // Only failed logins count.
  refund: { ifSuccessful: true },
  policies: [
    // One address that tries many accounts. Counts after the response, so that a whole office can log in at once.
    {
      name: 'address',
      limit: 10,
      window: '15m',
      count: 'after',
      block: { after: 5, for: ['5m', '1h', '1d'] },
    },
    // One address that tries one account. Counts at once and refunds a success, so parallel guesses are limited too.
    { limiter: pairs, key: pairOf, block: { after: 3, for: '15m' } },
    // Many addresses that try one account. A high limit without a block, so an attacker cannot lock out the owner.
    { name: 'account', limit: 100, window: '1h', key: accountOf, count: 'after', hidden: true },
  ],
})

// The keys are in the body, so it is parsed first. Its size is limited.
app.post('/login', express.json({ limit: '1kb' }), protect, async (req, res) => {
  const account = accountOf(req)
  const pair = pairOf(req)
  const { password } = req.body ?? {}
  if (account === null || pair === null || typeof password !== 'string') {
    res.status(400).json({ error: 'Expected an account and a password' })
  } else if (await isPassword(account, password)) {
    // Not the address: an attacker could clear it by logging in to their own account.
    pairs.reset(pair)
    res.json({ welcome: account })
  } else {
    // The same answer, time and limits as for an unknown account, so an attacker cannot find out which accounts exist.
    res.status(401).json({ error: 'Wrong account or password' })
  }
})

/**
 * Normalizes the account, so that all its spellings share one limit. Returns null for an invalid account.
 * @param {express.Request} req
 */
function accountOf({ body }) {
  if (typeof body?.account !== 'string') return null
  const account = body.account.normalize('NFKC').trim().toLowerCase()
  return account === '' || account.length > 254 ? null : account
}

/** @param {express.Request} req */
function pairOf(req) {
  const account = accountOf(req)
  return account && `${addressKey(req.ip ?? '')} ${account}`
}

const server = app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1', error => {
  if (error) throw error
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address())
  console.log(`listening on http://127.0.0.1:${port}`)
})
