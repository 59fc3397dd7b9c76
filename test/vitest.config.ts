import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    root: import.meta.dirname,
    maxWorkers: 2,
    // A busy machine is slow, and that is no failure.
    testTimeout: 30_000,
    reporters: ['default', './support/contract-table.ts'],
    execArgv: ['--expose-gc'],
  },
})
