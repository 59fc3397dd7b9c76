// Runs the benchmarks one after the other, each in its own process: npm run bench [-- name ...]
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

const BENCHMARKS = ['size', 'decisions', 'events', 'memory', 'longest-call', 'waiting', 'http', 'redis']

const { positionals } = parseArgs({ allowPositionals: true })
const unknown = positionals.find(name => !BENCHMARKS.includes(name))
if (unknown !== undefined) {
  console.error(`no benchmark '${unknown}'; there are ${BENCHMARKS.join(', ')}`)
  process.exit(1)
}

for (const name of positionals.length > 0 ? positionals : BENCHMARKS) {
  console.log(`\n== ${name} ==`)
  const script = join(import.meta.dirname, `${name}.js`)
  const { status } = spawnSync(process.execPath, ['--conditions=built', '--expose-gc', script], {
    stdio: 'inherit',
  })
  if (status !== 0) process.exit(status ?? 1)
}
