import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { manualClock } from '@sluice/core/testing'

/*
 * For suites over servers: time stands still in each test unless the test moves it, and what it opened is closed after it.
 * The hooks are in each-test-hooks.ts, which runs before every file: files that share a process import this one once.
 */

export let clock = manualClock()

/** What to close after the test, the last first. */
export const closing: (() => unknown)[] = []

export function beginTest(): void {
  clock = manualClock()
}

export async function endTest(): Promise<void> {
  for (const close of closing.splice(0).reverse()) await close()
}

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
