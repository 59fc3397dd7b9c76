import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { configDefaults, defineConfig } from 'vitest/config'

/** Suites of packages as they are published, which need them installed. */
const INSTALLED = ['packages/**/*.test.ts', 'examples/**/*.test.ts']
/** Suites that search longer than each change has to wait for; `npm run test:long` runs them. */
const LONG = ['**/*.long.test.ts']

/** What a file uses when it changes, or looks at, something that is one for the whole process. */
const OF_THE_PROCESS =
  /emitWarning|['"]warning['"]|vi\.(mock|doMock|stub|spyOn|resetModules|useFakeTimers)|unhandledDuring|unhandledRejection|diagnostics_channel|support\/events|\bgc\(|memoryUsage|child_process|support\/process/

const alone = readdirSync(import.meta.dirname, { recursive: true, encoding: 'utf8' })
  .filter(file => file.endsWith('.test.ts') && !file.startsWith('node_modules'))
  .filter(file => OF_THE_PROCESS.test(readFileSync(join(import.meta.dirname, file), 'utf8')))

export default defineConfig({
  test: {
    root: import.meta.dirname,
    maxWorkers: 2,
    // A busy machine is slow, and that is no failure.
    testTimeout: 30_000,
    reporters: ['default', './support/contract-table.ts'],
    execArgv: ['--expose-gc'],
    passWithNoTests: true,
    setupFiles: './support/each-test-hooks.ts',
    projects: [
      {
        extends: true,
        test: {
          name: 'installed',
          include: INSTALLED,
          globalSetup: './support/install-packages.ts',
        },
      },
      {
        extends: true,
        test: {
          name: 'alone',
          include: alone,
          exclude: [...configDefaults.exclude, ...INSTALLED, ...LONG],
        },
      },
      {
        extends: true,
        test: {
          name: 'together',
          include: ['**/*.test.ts'],
          exclude: [...configDefaults.exclude, ...INSTALLED, ...LONG, ...alone],
          // Files share a process, and import the code that they test once.
          isolate: false,
        },
      },
      { extends: true, test: { name: 'long', include: LONG } },
    ],
  },
})
