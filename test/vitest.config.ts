import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { configDefaults, defineConfig } from 'vitest/config'

/** Suites of packages as they are published, which need them installed. */
const INSTALLED = ['packages/**/*.test.ts', 'examples/**/*.test.ts']
/** Suites that take too long to run for every change. `npm run test:long` runs them, and nothing else does. */
const LONG = ['**/*.long.test.ts']

/**
 * What a file uses if it reads or changes something that a process has once: its warnings, its modules, its memory, its
 * channels, its children. Such a file runs in a process of its own.
 */
const OF_THE_PROCESS =
  /emitWarning|['"]warning['"]|vi\.(mock|doMock|stub|spyOn|resetModules|useFakeTimers)|unhandledDuring|unhandledRejection|diagnostics_channel|support\/events|\bgc\(|memoryUsage|child_process|support\/process/

const filesOfTheProcess = readdirSync(import.meta.dirname, { recursive: true, encoding: 'utf8' })
  .filter(file => file.endsWith('.test.ts') && !file.startsWith('node_modules'))
  .filter(file => OF_THE_PROCESS.test(readFileSync(join(import.meta.dirname, file), 'utf8')))

const installed = {
  name: 'installed',
  include: INSTALLED,
  globalSetup: './support/install-packages.ts',
  isolate: false,
}

const alone = {
  name: 'alone',
  include: filesOfTheProcess,
  exclude: [...configDefaults.exclude, ...INSTALLED, ...LONG],
}

/** Files that share a process import the code that they test once. */
const together = {
  name: 'together',
  include: ['**/*.test.ts'],
  exclude: [...configDefaults.exclude, ...INSTALLED, ...LONG, ...filesOfTheProcess],
  isolate: false,
}

const long = { name: 'long', include: LONG, testTimeout: 600_000 }

export default defineConfig(({ mode }) => ({
  test: {
    root: import.meta.dirname,
    maxWorkers: 2,
    // A busy machine is slow, and that is no failure.
    testTimeout: 30_000,
    reporters: ['default', './support/contract-table.ts'],
    execArgv: ['--expose-gc'],
    setupFiles: './support/each-test-hooks.ts',
    coverage: {
      provider: 'v8',
      // The sources lie outside of this folder.
      allowExternal: true,
      include: ['**/packages/core/src/**'],
      reporter: ['text-summary'],
      thresholds: { lines: 97 },
    },
    projects: (mode === 'long' ? [long] : [installed, alone, together]).map(test => ({
      extends: true,
      test,
    })),
  },
}))
