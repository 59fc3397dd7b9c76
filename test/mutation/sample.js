import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join, matchesGlob, relative } from 'node:path'
import { Instrumenter } from '@stryker-mutator/instrumenter'
import { AREAS, EXCLUDED } from './areas.js'

const SOURCES = join(import.meta.dirname, '../../packages/core/src')

/** The name of the area of a file, if any. */
export function areaOf(file) {
  const path = relative(SOURCES, file)
  return AREAS.find(({ files }) => files.some(glob => matchesGlob(path, glob)))?.name
}

/** The mutants to test, independent of the place of their code. A smaller scale is a subset of a larger one. */
export async function sampleOfMutants(scale) {
  const files = readdirSync(SOURCES, { recursive: true })
    .filter(path => path.endsWith('.ts'))
    .sort()
    .map(path => join(SOURCES, path))
    .filter(file => areaOf(file) !== undefined)
    .map(name => ({ name, content: readFileSync(name, 'utf8'), mutate: true }))
  const lines = Object.fromEntries(files.map(({ name, content }) => [name, content.split('\n')]))

  const instrumenter = new Instrumenter({ debug() {}, info() {}, isDebugEnabled: () => false })
  const { mutants } = await instrumenter.instrument(files, {
    ignorers: [],
    plugins: null,
    excludedMutations: EXCLUDED,
  })
  return mutants.filter(mutant => {
    const share = AREAS.find(({ name }) => name === areaOf(mutant.fileName)).share
    return mutant.status !== 'Ignored' && fraction(mutant, lines[mutant.fileName]) < share * scale
  })
}

/** A number from 0 to 1, computed from the code of a mutant and its replacement but not from its place. */
function fraction({ location: { start, end }, mutatorName, replacement }, lines) {
  const whole = lines.slice(start.line, end.line + 1).map(line => line.trim())
  const mutated = lines.slice(start.line, end.line + 1)
  mutated[mutated.length - 1] = mutated.at(-1).slice(0, end.column)
  mutated[0] = mutated[0].slice(start.column)
  const text = [mutatorName, whole, mutated.map(line => line.trim()), replacement]
  return createHash('sha256').update(JSON.stringify(text)).digest().readUInt32BE() / 2 ** 32
}

/** Identifies a mutant within a run. */
export function identity({ fileName, location, mutatorName, replacement }) {
  return JSON.stringify([fileName, location.start, location.end, mutatorName, replacement])
}
