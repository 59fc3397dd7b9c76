import { join } from 'node:path'
import { expect, test } from 'vitest'
import { Running } from '../support/process.js'

const ROOT = join(import.meta.dirname, '../..')

test('the demo prints a dozen real requests, keeps serving, and stops with Ctrl-C', async () => {
  const demo = new Running(['--import', 'tsx', 'examples/demo/demo.js'], ROOT, { PORT: '0' })
  try {
    const [, url] = (await demo.printed(/Try: +curl -i (\S+)/)) as unknown as [string, string]
    const rows = demo.output.match(/^\d+ .*$/gm) ?? []
    expect(rows).toHaveLength(12)
    expect(rows.filter(row => row.includes(' 200 ')).length).toBeGreaterThanOrEqual(7)
    const refused = rows.filter(row => row.includes(' 429 '))
    expect(refused.length).toBeGreaterThanOrEqual(3)
    for (const row of refused) expect(row).toMatch(/429 +"default";r=0;t=1 +"default";q=5;w=5 +1/)
    expect((await fetch(url)).headers.get('RateLimit-Policy')).toBe('"default";q=5;w=5')
    expect(await demo.stop('SIGINT')).toBe(0)
  } finally {
    await demo.stop('SIGKILL')
  }
}, 30_000)
