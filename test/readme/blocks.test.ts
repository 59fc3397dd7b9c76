import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Block, blocksOf, README, ROOT } from './readme.js'

/** What must not pass. It stands behind the README, in the same run, so a mistake in its grammar would hide all others. */
const WRONG = `

# Wrong
\`\`\`js
app.use(rateLimit({ limit: 100, windows: '1m' }))
\`\`\`
\`\`\`js
app.use(rateLimit({ limit: 100, window: '1m', refund: { ifSuccess: true } }))
\`\`\`
\`\`\`ts
import { tokenBuckets } from '@sluice/core'
\`\`\`
\`\`\`js
const limiter = 5
\`\`\`
\`\`\`js
limiter.toFixed()
\`\`\`
<!-- run -->
\`\`\`js
import '@sluice/core'
throw new Error('wrong')
\`\`\`
<!-- run -->
\`\`\`js
process.emitWarning('wrong')
\`\`\`
<!-- run -->
\`\`\`js
import { createServer } from 'node:http'
createServer((request, response) => response.end('no limit')).listen(3000)
\`\`\`
# Right
\`\`\`js
const limiter = 5
\`\`\`
<!-- after: previous -->
\`\`\`js
limiter.toFixed()
\`\`\`
`

const blocks = blocksOf(README + WRONG)
const of = (heading: string) => blocks.filter(({ title }) => title.startsWith(heading))
const wrong = of('Wrong')
const right = blocks.filter(block => !wrong.includes(block))

let folder: string
let complaints: ReadonlyMap<Block, readonly string[]>

beforeAll(async () => {
  // Where packages are found as by the tests.
  const cache = join(ROOT, 'test/node_modules/.cache')
  await mkdir(cache, { recursive: true })
  folder = await mkdtemp(join(cache, 'readme-'))
  await Promise.all(blocks.map(block => writeFile(fileOf(block), block.text)))
  complaints = await check()
}, 30_000)

afterAll(() => rm(folder, { recursive: true, force: true }))

describe('compiles:', () => {
  test.each(right)('$title', block => {
    expect(complaints.get(block)).toEqual([])
  })

  test('but not what is wrong', () => {
    const texts = wrong.filter(({ isRun }) => !isRun).map(block => complaints.get(block)?.join('\n'))
    expect(texts).toEqual([
      expect.stringContaining("'windows' does not exist"),
      expect.stringContaining("'ifSuccess' does not exist"),
      expect.stringContaining("no exported member named 'tokenBuckets'"),
      '',
      expect.stringContaining("Cannot find name 'limiter'"),
    ])
  })
})

describe('runs:', () => {
  test.concurrent.each(right.filter(({ isRun }) => isRun))('$title', async block => {
    expect(await start(block)).toEqual({ code: 0, errors: '' })
  })

  test.concurrent.each(wrong.filter(({ isRun }) => isRun))('but not $title', async block => {
    expect(await start(block)).not.toEqual({ code: 0, errors: '' })
  })
})

function fileOf(block: Block): string {
  return join(folder, `${blocks.indexOf(block)}.${block.extension}`)
}

/** What the compiler says of each block, with the lines of the README. */
async function check(): Promise<ReadonlyMap<Block, readonly string[]>> {
  const config = {
    extends: join(ROOT, 'tsconfig.json'),
    compilerOptions: {
      noEmit: true,
      composite: false,
      declaration: false,
      declarationMap: false,
      sourceMap: false,
      allowJs: true,
      checkJs: true,
      moduleDetection: 'force',
      noImplicitAny: false,
      noUnusedLocals: false,
      noUnusedParameters: false,
    },
    files: [...blocks.map(fileOf), join(import.meta.dirname, 'prelude.d.mts')],
  }
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config))
  const { output } = await ended(['node_modules/typescript/bin/tsc', '-p', folder, '--pretty', 'false'])
  const byBlock = new Map<Block, string[]>(blocks.map(block => [block, []]))
  let last: string[] | undefined
  for (const line of output.split('\n')) {
    const [, number, at, text] = /(\d+)\.m[jt]s\((\d+),\d+\): (.*)/.exec(line) ?? []
    if (number !== undefined) {
      last = byBlock.get(blocks[Number(number)] as Block)
      last?.push(`README.md:${at} ${text}`)
    } else if (line.startsWith('  ')) last?.push(line)
    else if (line !== '') throw new Error(line)
  }
  return byBlock
}

/** Runs a block, and says how it ended. */
async function start(block: Block): Promise<{ code: number; errors: string }> {
  const { code, errors } = await ended([
    '--import',
    'tsx',
    '--import',
    './test/readme/brief-servers.ts',
    fileOf(block),
  ])
  return { code, errors }
}

function ended(args: readonly string[]): Promise<{ code: number; output: string; errors: string }> {
  return new Promise(resolve => {
    execFile(process.execPath, args, { cwd: ROOT, timeout: 20_000 }, (error, output, errors) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), output, errors })
    })
  })
}
