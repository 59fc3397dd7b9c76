import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as core from '@sluice/core'
import { limitRoute } from '@sluice/core/http'
import { manualClock } from '@sluice/core/testing'
import { rateLimit } from '@sluice/fastify'
import { fastify } from 'fastify'
import { describe, expect, test } from 'vitest'
import { namesIn, pages, ROOT, sectionOf, textOf } from './pages.js'

describe('the documentation names all that exists, and nothing else:', () => {
  test('options', () => {
    const own = ['hook', 'onError']
    const documented = namesIn(sectionOf('README.md', 'Options'))
    expect(documented.toSorted()).toEqual([...commonOptions(), ...own].toSorted())
  })

  test.each(namesIn(sectionOf('README.md', 'Options')))('option %s is known', async option => {
    const isKnown = (error: { code?: string }) => error.code !== 'SLUICE_UNKNOWN_OPTION'
    const options = { limit: 1, window: '1s', [option]: Symbol('of no type') } as never
    const error =
      option === 'hook'
        ? await errorOf(async () => fastify().register(rateLimit, options))
        : await errorOf(() => limitRoute(options))
    expect(error).toSatisfy(isKnown)
  })

  test('verbs of a limiter', () => {
    const { prototype } = core.createLimiter(core.tokenBucket({ limit: 1, window: '1s' })).constructor
    const documented = namesIn(sectionOf('docs/limiters.md', 'Verbs'))
    for (const verb of documented) expect(prototype[verb], verb).toBeInstanceOf(Function)
    expect(documented.toSorted()).toEqual(
      methodsIn('packages/core/src/limiter/limiter.ts', 'Limiter').toSorted(),
    )
  })

  test.each([
    ['docs/limiters.md', 'Decisions', 'DecisionFigures'],
    ['docs/limiters.md', 'Options', 'LimiterOptions'],
    ['docs/production.md', 'Figures', 'LimiterStats'],
    ['docs/http.md', 'Refusals', 'Refusal'],
  ])('members on %s under %s', (path, heading, type) => {
    expect(namesIn(sectionOf(path, heading)).toSorted()).toEqual(membersOf(type).toSorted())
  })

  test('members of a manual clock', () => {
    const clock = manualClock()
    const documented = namesIn(sectionOf('docs/testing.md', 'Testing'))
    const inherited = ['nowUs', 'setAlarm']
    expect([...documented, ...inherited].toSorted()).toEqual(Object.keys(clock).toSorted())
  })

  test('algorithms', () => {
    const documented = namesIn(sectionOf('docs/algorithms.md', 'Choosing an algorithm'))
    expect(documented.toSorted()).toEqual(algorithms().toSorted())
  })

  test('codes, each explained once', () => {
    const documented = namesIn(textOf('docs/errors-and-warnings.md'))
    expect(documented.toSorted()).toEqual(distinct(sources().join('\n'), /SLUICE_[A-Z_]+/g))
  })

  test('codes on other pages', () => {
    const known = distinct(sources().join('\n'), /SLUICE_[A-Z_]+/g)
    for (const { path, text } of pages)
      expect(known, path).toEqual(expect.arrayContaining(distinct(text, /SLUICE_[A-Z_]+/g)))
  })

  test('codes of errors under the heading of errors', () => {
    const source = readFileSync(join(ROOT, 'packages/core/src/shared/errors.ts'), 'utf8')
    const codes = distinct(source, /(?<=^ {2}\| ')SLUICE_[A-Z_]+(?=')/gm)
    expect(codes).not.toEqual([])
    const documented = namesIn(sectionOf('docs/errors-and-warnings.md', 'Errors'))
    expect(documented.toSorted()).toEqual(codes)
  })

  test('events', () => {
    const source = readFileSync(join(ROOT, 'packages/core/src/limiter/events.ts'), 'utf8')
    const channels = distinct(source, /(?<=^ {2}')sluice:[a-z-]+(?=':)/gm)
    expect(channels).not.toEqual([])
    const documented = namesIn(sectionOf('docs/production.md', 'Events'))
    expect(documented.toSorted()).toEqual(channels)
    for (const { path, text } of pages)
      expect(channels, path).toEqual(expect.arrayContaining(distinct(text, /sluice:[a-z-]+/g)))
  })
})

test('every example is named in the README', () => {
  const examples = readdirSync(join(ROOT, 'examples'), { withFileTypes: true })
  const named = distinct(textOf('README.md'), /(?<=examples\/)[\w-]+/g)
  const folders = examples.filter(entry => entry.isDirectory()).map(({ name }) => name)
  expect(named).toEqual(folders.filter(name => name !== 'node_modules').toSorted())
})

/** The members of the types of options that every adapter takes. */
function commonOptions(): string[] {
  const types = [
    'LimitDoor',
    'LimiterDoor',
    'PoliciesDoor',
    'CountingOptions',
    'RequestOptions',
    'ProxyOptions',
  ]
  return [...new Set(types.flatMap(membersOf))]
}

/** The properties of an exported interface, wherever it is. */
function membersOf(name: string): string[] {
  const declaration = new RegExp(`^export interface ${name}\\b.*?\\{\n(.*?)^\\}`, 'ms')
  const body = declaration.exec(sources().join('\n'))?.[1]
  if (body === undefined) throw new Error(`no interface ${name}`)
  return [...body.matchAll(/^ {2}readonly (\w+)\??:/gm)].map(([, member]) => member as string)
}

async function errorOf(act: () => unknown): Promise<{ code?: string }> {
  try {
    await act()
  } catch (error) {
    return error as { code?: string }
  }
  return {}
}

function methodsIn(file: string, name: string): string[] {
  const source = readFileSync(join(ROOT, file), 'utf8')
  const [, body = ''] = new RegExp(`export interface ${name}<.*?\\{\n(.*?)\n\\}`, 's').exec(source) ?? []
  return [...body.matchAll(/^ {2}(\w+)\(/gm)].map(([, method]) => method as string)
}

/** The factories that core exports, one file each. */
function algorithms(): string[] {
  const index = readFileSync(join(ROOT, 'packages/core/src/index.ts'), 'utf8')
  const exported = [...index.matchAll(/^export \{(.*)\} from '\.\/algorithms\//gm)]
  return exported
    .map(([, names]) => names?.split(',').at(-1)?.trim() as string)
    .filter(name => !name.startsWith('type '))
}

function sources(): string[] {
  return readdirSync(join(ROOT, 'packages')).flatMap(name => {
    const folder = join(ROOT, 'packages', name, 'src')
    const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    return files.filter(file => file.endsWith('.ts')).map(file => readFileSync(join(folder, file), 'utf8'))
  })
}

function distinct(text: string, pattern: RegExp): string[] {
  return [...new Set(text.match(pattern))].toSorted()
}
