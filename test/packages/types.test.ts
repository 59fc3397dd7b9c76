import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import ts from 'typescript5'
import { expect, inject, test } from 'vitest'

/*
 * Compiles an app against the published types with every module resolution of TypeScript. TypeScript 5 is the last
 * version that has all of them.
 */

const { consumer } = inject('installed')

const APP = `
  import { createLimiter, tokenBucket, type Decision, type Duration } from '@sluice/core'
  import { createGuard } from '@sluice/core/http'
  import { manualClock } from '@sluice/core/testing'
  import express, { rateLimit } from '@sluice/express'
  import { rateLimit as koa } from '@sluice/koa'
  import { rateLimit as fastify } from '@sluice/fastify'
  const window: Duration = '1m'
  const clock = manualClock()
  const decision: Decision = createLimiter(tokenBucket({ limit: 1, window }), { clock }).tryAcquire('key')
  export const used = [createGuard, express({ limit: 1, window }), rateLimit({ limit: 1, window }), koa, fastify, decision]
`
/** An error that TypeScript reports only if it has read the types. */
const WRONG = `
  import { createLimiter } from '@sluice/core'
  import { rateLimit } from '@sluice/express'
  export const wrong = [createLimiter('5 per minute'), rateLimit({ limit: '5', window: '1m' })]
`

const WAYS = [
  ['commonjs', 'node10', 'commonjs', false],
  ['commonjs', 'node10', 'commonjs', true],
  ['node16', 'node16', 'module', false],
  ['nodenext', 'nodenext', 'module', false],
  ['nodenext', 'nodenext', 'commonjs', false],
  ['esnext', 'bundler', 'module', false],
] as const

test.each(WAYS)(
  'the published types resolve with module %s, moduleResolution %s, in a package of type %s, esModuleInterop %s (S61, fastify/fastify-rate-limit)',
  async (module, moduleResolution, type, esModuleInterop) => {
    const project = join(consumer, 'apps', `${module}-${moduleResolution}-${type}-${esModuleInterop}`)
    await mkdir(project, { recursive: true })
    await writeFile(join(project, 'package.json'), JSON.stringify({ type }))
    await writeFile(join(project, 'app.ts'), APP)
    await writeFile(join(project, 'wrong.ts'), WRONG)
    const { options, errors } = ts.convertCompilerOptionsFromJson(
      {
        module,
        moduleResolution,
        ...(esModuleInterop ? { esModuleInterop } : {}),
        target: 'es2022',
        strict: true,
        noEmit: true,
        exactOptionalPropertyTypes: true,
        skipLibCheck: true,
        types: ['node'],
        typeRoots: [join(consumer, 'node_modules/@types')],
      },
      project,
    )
    expect(errors).toEqual([])
    const program = ts.createProgram(
      [join(project, 'app.ts'), join(project, 'wrong.ts')],
      options,
      hostOf(options),
    )
    const complaints = ts.getPreEmitDiagnostics(program).map(({ file, messageText }) => ({
      file: file?.fileName.slice(project.length + 1),
      text: ts.flattenDiagnosticMessageText(messageText, '\n'),
    }))
    expect(complaints.filter(({ file }) => file !== 'wrong.ts')).toEqual([])
    expect(complaints).toHaveLength(2)
  },
  60_000,
)

const libraries = new Map<string, ts.SourceFile | undefined>()

/** Reads the declarations of the language once for all programs. */
function hostOf(options: ts.CompilerOptions): ts.CompilerHost {
  const host = ts.createCompilerHost(options)
  const { getSourceFile } = host
  host.getSourceFile = (name, ...rest) => {
    if (!/[\\/]lib\.[^\\/]*\.d\.ts$/.test(name)) return getSourceFile(name, ...rest)
    if (!libraries.has(name)) libraries.set(name, getSourceFile(name, ...rest))
    return libraries.get(name)
  }
  return host
}
