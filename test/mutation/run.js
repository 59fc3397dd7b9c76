import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/*
 * Mutation testing in a copy of the checkout, because Stryker writes the mutants into the sources.
 * `npm run test:mutation -- 0.25` tries a quarter of the sample.
 */

const ROOT = join(import.meta.dirname, '../..')
const [scale = '1'] = process.argv.slice(2)
const SURVIVORS = join(ROOT, 'node_modules/.cache/sluice-mutation/survivors.txt')

// An interrupt ends the run in the copy; then the copy is removed.
process.on('SIGINT', () => {})

const copy = mkdtempSync(join(tmpdir(), 'sluice-mutation-'))
try {
  const files = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: ROOT,
    encoding: 'utf8',
  })
  for (const file of files.split('\0').filter(Boolean))
    if (existsSync(join(ROOT, file))) cpSync(join(ROOT, file), join(copy, file))

  const inCopy = { cwd: copy, stdio: 'inherit' }
  execFileSync('npm', ['run', 'setup'], inCopy)
  process.exitCode = spawnSync('node', ['test/mutation/measure.js', SURVIVORS, scale], inCopy).status ?? 1
  if (process.exitCode === 0) console.log(`The survivors are in ${SURVIVORS}`)
} finally {
  rmSync(copy, { recursive: true })
}
