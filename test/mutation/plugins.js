import { relative } from 'node:path'
import { declareClassPlugin, PluginKind } from '@stryker-mutator/api/plugin'
import { areaOf, identity } from './sample.js'

/*
 * Stryker mutates ranges of a file, so other mutants within the range of a sampled one come along. This checker drops
 * them before they run.
 */
class OnlySample {
  static inject = ['options']

  constructor({ sample }) {
    this.sample = new Set(sample)
  }

  async init() {}

  async check(mutants) {
    const statusOf = mutant => (this.sample.has(identity(mutant)) ? 'passed' : 'compileError')
    return Object.fromEntries(
      mutants.map(mutant => [mutant.id, { status: statusOf(mutant), reason: 'not in the sample' }]),
    )
  }

  async group(mutants) {
    return [mutants.map(({ id }) => id)]
  }
}

/** Prints the result of each mutant, so that the output of an interrupted run is of use. */
class EachMutant {
  static inject = []

  onMutantTested({ status, fileName, location, mutatorName }) {
    if (status === 'CompileError' || status === 'Ignored') return
    const { line, column } = location.start
    console.log(
      `${status}\t${areaOf(fileName)}\t${mutatorName}\t${relative(process.cwd(), fileName)}:${line}:${column}`,
    )
  }
}

export const strykerPlugins = [
  declareClassPlugin(PluginKind.Checker, 'only-sample', OnlySample),
  declareClassPlugin(PluginKind.Reporter, 'each-mutant', EachMutant),
]
