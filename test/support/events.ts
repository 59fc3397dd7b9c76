import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { SluiceEvents } from '@sluice/core'
import { onTestFinished } from 'vitest'

/** The messages of a channel from now until the end of the test. */
export function heard<Name extends keyof SluiceEvents>(name: Name): SluiceEvents[Name][] {
  const messages: SluiceEvents[Name][] = []
  const listener = (message: unknown) => messages.push(message as SluiceEvents[Name])
  subscribe(name, listener)
  onTestFinished(() => {
    unsubscribe(name, listener)
  })
  return messages
}
