// Starts a rate-limited server, sends it a dozen requests, shows what came back, and stays up for curl.
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { rateLimit } from '@sluice/express'
import express from 'express'

const app = express()
app.use(rateLimit({ limit: 5, window: '5s' }))
app.get('/', (_req, res) => {
  res.send('Hello\n')
})

const server = app.listen(Number(process.env.PORT ?? 0), '127.0.0.1')
await once(server, 'listening')
const { port } = /** @type {import('node:net').AddressInfo} */ (server.address())
const url = `http://127.0.0.1:${port}/`

console.log(`\n${url} takes 5 requests at once from a client, then one a second.\n`)
row('#', 'status', 'RateLimit', 'RateLimit-Policy', 'Retry-After')
for (let number = 1; number <= 12; number++) {
  if (number === 9) {
    console.log('... two seconds later ...')
    await sleep(2000)
  }
  const response = await fetch(url)
  const header = (/** @type {string} */ name) => response.headers.get(name) ?? '-'
  row(number, response.status, header('RateLimit'), header('RateLimit-Policy'), header('Retry-After'))
}
console.log(`\nStill listening. Try:  curl -i ${url}\nStop with Ctrl-C.`)

for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, () => {
    server.close()
    server.closeAllConnections()
  })
}

/** @param {(string | number)[]} cells */
function row(...cells) {
  const widths = [4, 8, 24, 24, 11]
  console.log(cells.map((cell, column) => String(cell).padEnd(widths[column] ?? 0)).join(''))
}
