import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    root: import.meta.dirname,
    maxWorkers: 2,
    reporters: ['default', './support/contract-table.ts'],
    execArgv: ['--expose-gc'],
  },
})
