import { join } from 'node:path'
import type { Plugin } from 'vite'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** The folders whose tests run, the fast ones first. */
const FOLDERS = ['algorithms', 'vectors', 'limiter', 'store', 'joint', 'http', 'frameworks', 'laws']

const place = ({ moduleId }: TestSpecification) =>
  FOLDERS.findIndex(folder => moduleId.includes(`/test/${folder}/`))

class SoonOverFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]) {
    return files.sort((a, b) => place(a) - place(b) || a.moduleId.localeCompare(b.moduleId))
  }
}

/**
 * Runs fewer tests. The mutants are in core, and every framework would test them in the same way. A mutant that fails
 * a property usually fails within a few runs.
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
      // These start processes, in which no mutant is active.
      'limiter/process.test.ts',
      'limiter/warnings.test.ts',
      // These measure real time, and fail on a machine that is busy with mutants.
      'store/deadlines.test.ts',
      'http/proxies.test.ts',
    ],
    setupFiles: [join(import.meta.dirname, 'setup.ts'), './support/each-test-hooks.ts'],
    // A mutant can make a test wait for ever.
    testTimeout: 15_000,
    sequence: { sequencer: SoonOverFirst },
  },
})
