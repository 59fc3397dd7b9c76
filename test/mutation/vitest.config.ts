import { join } from 'node:path'
import type { Plugin } from 'vite'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** The folders whose suites are run, those first that are soon over. */
const FOLDERS = ['algorithms', 'vectors', 'limiter', 'store', 'joint', 'http', 'adapters', 'laws']

const place = ({ moduleId }: TestSpecification) =>
  FOLDERS.findIndex(folder => moduleId.includes(`/test/${folder}/`))

class SoonOverFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]) {
    return files.sort((a, b) => place(a) - place(b) || a.moduleId.localeCompare(b.moduleId))
  }
}

/**
 * Fewer tests of the same: what is mutated is in core, and each framework would only ask it the same again; and a mutant
 * that fails a property at all fails it soon.
 */
const fewerTests: Plugin = {
  name: 'fewer-tests',
  enforce: 'pre',
  transform: code =>
    code
      .replaceAll('describe.each(servers)', 'describe.each(servers.slice(-1))')
      .replaceAll(/\bnumRuns: (\d+)/g, (_, runs) => `numRuns: ${Math.ceil(runs / 5)}`),
}

export default defineConfig({
  plugins: [fewerTests],
  test: {
    root: join(import.meta.dirname, '..'),
    include: FOLDERS.map(folder => `${folder}/**/*.test.ts`),
    exclude: [
      // They start processes, which no mutant is switched on in.
      'limiter/process.test.ts',
      'limiter/warnings.test.ts',
      // They measure real time, and more is late on a machine that is busy with mutants.
      'store/deadlines.test.ts',
      'http/proxies.test.ts',
    ],
    setupFiles: [join(import.meta.dirname, 'setup.ts')],
    // A test that waits for ever is to be over soon.
    testTimeout: 15_000,
    sequence: { sequencer: SoonOverFirst },
  },
})
