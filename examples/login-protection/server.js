import { createLimiter, tokenBucket } from '@sluice/core'
import { addressKey } from '@sluice/core/http'
import { rateLimit } from '@sluice/express'
import express from 'express'
import { isPassword } from './accounts.js'

const app = express()

// The proxy in front of this server runs on the same machine. Nobody else is believed who the client is.
app.set('trust proxy', 'loopback')

const pairs = createLimiter(tokenBucket({ limit: 5, window: '15m' }), { name: 'account-and-address' })

const protect = rateLimit({
  // Only failures count.
  refund: { ifSuccessful: true },
  policies: [
    // Who tries many accounts. Counted when it is known how it ended, so that a whole office may log in at once.
    {
      name: 'address',
      limit: 10,
      window: '15m',
      count: 'after',
      block: { after: 5, for: ['5m', '1h', '1d'] },
    },
    // Who tries one account. Counted at once and given back, so that many guesses at the same time gain nothing.
    { limiter: pairs, key: pairOf, block: { after: 3, for: '15m' } },
    // Who tries one account from many addresses. Loose and never a block, or anybody could lock the owner out.
    { name: 'account', limit: 100, window: '1h', key: accountOf, count: 'after', hidden: true },
  ],
})

// The keys need the body, which is read first and has to be small.
app.post('/login', express.json({ limit: '1kb' }), protect, async (req, res) => {
  const account = accountOf(req)
  const pair = pairOf(req)
  const { password } = req.body ?? {}
  if (account === null || pair === null || typeof password !== 'string') {
    res.status(400).json({ error: 'Expected an account and a password' })
  } else if (await isPassword(account, password)) {
    // A typo or two are forgotten. The address is not: who guesses could log in to an account of his own in between.
    pairs.reset(pair)
    res.json({ welcome: account })
  } else {
    // The same answer, after the same time and by the same limits, whether there is such an account or not.
    res.status(401).json({ error: 'Wrong account or password' })
  }
})

/**
 * One spelling of each account, for the limits as for the look-up; null for what is none.
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
