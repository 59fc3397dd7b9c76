import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as core from '@sluice/core'
import { limitRoute } from '@sluice/core/http'
import { rateLimit } from '@sluice/fastify'
import { fastify } from 'fastify'
import { describe, expect, test } from 'vitest'
import { namesUnder, README, ROOT } from './readme.js'

describe('the README names what there is, and all of it:', () => {
  test('options', async () => {
    const own = ['hook', 'onError']
    expect(namesUnder('Options').toSorted()).toEqual([...commonOptions(), ...own].toSorted())
    expect(() => limitRoute({ limit: 1, window: '1s', onError: 5 as never })).toThrow('onError: expected')
    await expect(async () => {
      await fastify().register(rateLimit, { limit: 1, window: '1s', hook: 'onSend' as never })
    }).rejects.toThrow('hook: expected')
  })

  test('verbs of a limiter', () => {
    const limiter = core.createLimiter(core.tokenBucket({ limit: 1, window: '1s' }))
    const { prototype } = limiter.constructor
    const documented = namesUnder('A limiter of your own')
    for (const verb of documented) expect(prototype[verb], verb).toBeInstanceOf(Function)
    expect(documented.toSorted()).toEqual(
      methodsIn('packages/core/src/limiter/limiter.ts', 'Limiter').toSorted(),
    )
  })

  test('algorithms', () => {
    const documented = namesUnder('Choosing an algorithm')
    expect(documented.toSorted()).toEqual(algorithms().toSorted())
  })

  test('codes', () => {
    expect(distinct(README, /SLUICE_[A-Z_]+/g)).toEqual(distinct(sources().join('\n'), /SLUICE_[A-Z_]+/g))
  })

  test('events', () => {
    const source = readFileSync(join(ROOT, 'packages/core/src/limiter/events.ts'), 'utf8')
    const channels = distinct(source, /(?<=^ {2}')sluice:[a-z-]+(?=':)/gm)
    expect(channels).not.toEqual([])
    expect(distinct(README, /sluice:[a-z-]+/g)).toEqual(channels)
  })
})

test('links inside the README lead to headings', () => {
  const anchors = [...README.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\w -]/g, '')
      .replaceAll(' ', '-'),
  )
  for (const [, target] of README.matchAll(/\]\(#([^)]*)\)/g)) expect(anchors).toContain(target)
})

test('examples that the README names are there', () => {
  const examples = readdirSync(join(ROOT, 'examples'))
  for (const [, name] of README.matchAll(/`examples\/([\w-]+)`/g)) expect(examples).toContain(name)
})

/** Those that an adapter lists when it is given one that it cannot guess. */
function commonOptions(): string[] {
  try {
    limitRoute({ qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq: 1 } as never)
  } catch (error) {
    const [, list] = /the options are (.*)/.exec((error as Error).message) ?? []
    if (list !== undefined) return list.split(', ')
  }
  throw new Error('no list of options')
}

function methodsIn(file: string, name: string): string[] {
  const source = readFileSync(join(ROOT, file), 'utf8')
  const [, body = ''] = new RegExp(`export interface ${name}<.*?\\{\n(.*?)\n\\}`, 's').exec(source) ?? []
  return [...body.matchAll(/^ {2}(\w+)\(/gm)].map(([, method]) => method as string)
}

/** One file each; `createDecision` is for algorithms of one's own. */
function algorithms(): string[] {
  const index = readFileSync(join(ROOT, 'packages/core/src/index.ts'), 'utf8')
  const exported = [...index.matchAll(/^export \{(.*)\} from '\.\/algorithms\//gm)]
  const names = exported.flatMap(([, list]) => list?.split(',') ?? []).map(name => name.trim())
  return names.filter(name => !name.startsWith('type ') && name !== 'createDecision')
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
