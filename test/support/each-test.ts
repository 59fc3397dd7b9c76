import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { manualClock } from '@sluice/core/testing'
import { afterEach, beforeEach } from 'vitest'

/*
 * For suites over servers: time stands still in each test unless it is moved, and what was opened is closed after it.
 */

export let clock = manualClock()

/** What is to be closed after the test, the last first. */
export const closing: (() => unknown)[] = []

beforeEach(() => {
  clock = manualClock()
})

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

/** A server that listens on the loopback until the test is over. */
export async function listening(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  closing.push(() => {
    server.closeAllConnections()
    return new Promise(resolve => server.close(resolve))
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}
