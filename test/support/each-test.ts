import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { manualClock } from '@sluice/core/testing'

/*
 * For tests with servers: the clock stands still unless the test moves it. What the test opened is closed after it.
 * The hooks are in each-test-hooks.ts, which runs before every file: files that share a process import this one once.
 */

export let clock = manualClock()

/** Closed after the test, the last one first. */
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
