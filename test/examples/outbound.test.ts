import { expect, test } from 'vitest'
import { run } from '../support/process.js'
import { folderOf } from './server-of.js'

test('the job delivers every item, waits after a 429, and exits', async () => {
  const output = await run(process.execPath, ['job.js'], folderOf('outbound'))
  const delivered = [...output.matchAll(/item (\d+): 200/g)].map(([, item]) => Number(item))
  expect(delivered.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 15 }, (_, item) => item))
  expect(output).toMatch(/item \d+: 429/)
  expect(output).toContain('a batch of 10: never')
  expect(output).toMatch(/done: \d+ grants, \d+ of them after a wait/)
})
