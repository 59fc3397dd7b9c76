import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { run } from '../support/process.js'

const ROOT = join(import.meta.dirname, '../..')
const LIMITER = `
  import { createLimiter, tokenBucket } from '@sluice/core'
  const limiter = createLimiter(tokenBucket({ limit: 1, window: '300ms' }))
  limiter.tryAcquire('key')
`

/** Runs a module until its process ends by itself, and returns its output. */
function outputOf(code: string): Promise<string> {
  return run('node', ['--import', 'tsx', '--input-type=module', '--eval', LIMITER + code], join(ROOT, 'test'))
}

describe('a process', () => {
  test('ends by itself after a check, without close() (S41, express-rate-limit/express-rate-limit#320)', async () => {
    expect(await outputOf(`console.log(limiter.peek('key').remaining)`)).toBe('0\n')
  })

  test('stays alive until an awaited acquire settles', async () => {
    const output = await outputOf(`
      const { waitMs } = await limiter.acquire('key')
      console.log(waitMs > 0 && limiter.peek('key').remaining === 0 ? 'waited' : waitMs)`)
    expect(output).toBe('waited\n')
  })

  test('does not stay alive for a wait that opted out', async () => {
    const output = await outputOf(`
      limiter.acquire('key', { unref: true }).then(() => console.log('waited'))
      process.on('exit', () => console.log('ended'))`)
    expect(output).toBe('ended\n')
  })

  test('does not stay alive for an aborted wait', async () => {
    const output = await outputOf(`
      const abort = new AbortController()
      limiter.acquire('key', { signal: abort.signal }).catch(reason => console.log(reason))
      abort.abort('gone')
      process.on('exit', () => console.log(process.getActiveResourcesInfo().filter(name => name === 'Timeout')))`)
    expect(output).toBe('gone\n[]\n')
  })
})
