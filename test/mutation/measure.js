import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, relative } from 'node:path'
import { Stryker } from '@stryker-mutator/core'
import { AREAS, EXCLUDED } from './areas.js'
import { areaOf, identity, sampleOfMutants } from './sample.js'

/*
 * Tries the sample of mutants in this checkout. The sources are overwritten meanwhile, so run.js starts this file in a
 * copy. Writes the mutants that survive to the file given as the first argument.
 */

const [survivorsFile, scale] = process.argv.slice(2)
const ROOT = process.cwd()

const started = performance.now()
const sample = await sampleOfMutants(Number(scale))

const results = await new Stryker({
  plugins: ['@stryker-mutator/vitest-runner', './plugins.js'].map(name => import.meta.resolve(name)),
  testRunner: 'vitest',
  vitest: { configFile: 'test/mutation/vitest.config.ts', related: false },
  // Some tests measure memory. The threads of a process share its flags.
  testRunnerNodeArgs: ['--expose-gc'],
  coverageAnalysis: 'perTest',
  // A mutant in code that runs while a module loads would need every test.
  ignoreStatic: true,
  inPlace: true,
  concurrency: 2,
  timeoutMS: 20_000,
  timeoutFactor: 4,
  dryRunTimeoutMinutes: 30,
  mutate: sample.map(({ fileName, location }) => `${relative(ROOT, fileName)}:${rangeOf(location)}`),
  mutator: { plugins: null, excludedMutations: EXCLUDED },
  checkers: ['only-sample'],
  sample: sample.map(identity),
  warnings: { unknownOptions: false },
  // TypeScript 7 lacks the API that Stryker would use.
  disableTypeChecks: false,
  reporters: ['progress-append-only', 'each-mutant'],
}).runMutationTest()

const tried = results.filter(({ status }) => !['CompileError', 'Ignored'].includes(status))
const survivors = tried.filter(({ status }) => ['Survived', 'NoCoverage'].includes(status))
mkdirSync(dirname(survivorsFile), { recursive: true })
writeFileSync(survivorsFile, survivors.map(describe).join('\n'))

console.table(
  Object.fromEntries([...AREAS.map(({ name }) => [name, figures(inArea(name))]), ['total', figures(tried)]]),
)
console.log(`${Math.round((performance.now() - started) / 60_000)} minutes`)

function rangeOf({ start, end }) {
  return `${start.line + 1}:${start.column}-${end.line + 1}:${end.column}`
}

function inArea(name) {
  return tried.filter(({ fileName }) => areaOf(fileName) === name)
}

function figures(mutants) {
  const count = status => mutants.filter(mutant => mutant.status === status).length
  const [killed, survived, timedOut, noCoverage] = ['Killed', 'Survived', 'Timeout', 'NoCoverage'].map(count)
  const errors = mutants.length - killed - survived - timedOut - noCoverage
  const score = `${((100 * (killed + timedOut)) / (mutants.length - errors)).toFixed(1)} %`
  return {
    mutants: mutants.length,
    killed,
    survived,
    'timed out': timedOut,
    'no coverage': noCoverage,
    errors,
    score,
  }
}

function describe({ fileName, location: { start, end }, mutatorName, replacement, status }) {
  const where = `${relative(ROOT, fileName)}:${start.line}:${start.column}-${end.line}:${end.column}`
  return `${status} ${mutatorName} ${where}\n${replacement}\n`
}
