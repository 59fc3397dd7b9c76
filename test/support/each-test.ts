import { manualClock } from '@sluice/core/testing'
import { afterEach, beforeEach } from 'vitest'

/*
 * For suites over servers: time stands still in each test unless it is moved, and what was opened is closed after it.
 */

export let clock = manualClock()

/** What is to be closed after the test. */
export const closing: (() => Promise<unknown>)[] = []

beforeEach(() => {
  clock = manualClock()
})

afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})
