import { execFile, fork } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Block, blocksOf, pages, ROOT } from './pages.js'
import type { Report } from './run-blocks.js'

/** Blocks with mistakes, checked in the same run as the real ones: a check that finds nothing would show here. */
const MISTAKES = `
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
throw new Error('mistake 1')
\`\`\`
<!-- run -->
\`\`\`js
process.emitWarning('mistake 2')
\`\`\`
<!-- run -->
\`\`\`js
import { createServer } from 'node:http'
createServer((request, response) => response.end('no limit')).listen(3000)
\`\`\`
`

const CONTINUED = `
\`\`\`js
const limiter = 5
\`\`\`
<!-- after: previous -->
\`\`\`js
limiter.toFixed()
\`\`\`
`

/** Far more than it takes, also on a busy machine. */
const TOO_LONG_MS = 120_000

const mistakes = blocksOf({ path: 'mistakes', text: MISTAKES })
const right = [...pages, { path: 'continued', text: CONTINUED }].flatMap(blocksOf)
const blocks = [...right, ...mistakes]
const running = blocks.filter(({ isRun }) => isRun)

let folder: string
let complaints: ReadonlyMap<Block, readonly string[]>
let reports: ReadonlyMap<string, readonly string[]>

beforeAll(async () => {
  // Here packages are found as they are from the tests.
  const cache = join(ROOT, 'test/node_modules/.cache')
  await mkdir(cache, { recursive: true })
  folder = await mkdtemp(join(cache, 'docs-'))
  await Promise.all(blocks.map(block => writeFile(fileOf(block), block.text)))
  ;[complaints, reports] = await Promise.all([compileAll(), runAll()])
}, 2 * TOO_LONG_MS)

afterAll(() => rm(folder, { recursive: true, force: true }))

describe('compiles:', () => {
  test.each(right)('$title', block => {
    expect(complaints.get(block)).toEqual([])
  })

  test('reports mistakes', () => {
    const texts = mistakes.filter(({ isRun }) => !isRun).map(block => complaints.get(block)?.join('\n'))
    expect(texts).toEqual([
      expect.stringContaining("'windows' does not exist"),
      expect.stringContaining("'ifSuccess' does not exist"),
      expect.stringContaining("no exported member named 'tokenBuckets'"),
      '',
      expect.stringContaining("Cannot find name 'limiter'"),
    ])
  })
})

describe('runs without an error or a warning, and ends:', () => {
  test.each(right.filter(({ isRun }) => isRun))('$title', block => {
    expect(reports.get(fileOf(block))).toEqual([])
  })

  test('reports mistakes', () => {
    const texts = mistakes.filter(({ isRun }) => isRun).map(block => reports.get(fileOf(block))?.join('\n'))
    expect(texts).toEqual([
      expect.stringContaining('mistake 1'),
      expect.stringContaining('mistake 2'),
      expect.stringContaining('answered with 200'),
    ])
  })
})

function fileOf(block: Block): string {
  return join(folder, `${blocks.indexOf(block)}.${block.extension}`)
}

/** The errors of the compiler by block, with the lines of the page. One run for all blocks. */
async function compileAll(): Promise<ReadonlyMap<Block, readonly string[]>> {
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
      useUnknownInCatchVariables: false,
    },
    files: [...blocks.map(fileOf), join(import.meta.dirname, 'prelude.d.mts')],
  }
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config))
  const output = await new Promise<string>((resolve, reject) => {
    const args = ['node_modules/typescript/bin/tsc', '-p', folder, '--pretty', 'false']
    execFile(process.execPath, args, { cwd: ROOT, timeout: TOO_LONG_MS }, (error, output) =>
      error?.killed ? reject(new Error('the compiler does not end')) : resolve(output),
    )
  })
  const byBlock = new Map<Block, string[]>(blocks.map(block => [block, []]))
  let last: string[] | undefined
  for (const line of output.split('\n')) {
    const [, number, at, text] = /(\d+)\.m[jt]s\((\d+),\d+\): (.*)/.exec(line) ?? []
    if (number !== undefined) {
      const block = blocks[Number(number)] as Block
      last = byBlock.get(block)
      last?.push(`${block.path}:${at} ${text}`)
    } else if (line.startsWith('  ')) last?.push(line)
    else if (line !== '') throw new Error(line)
  }
  return byBlock
}

/** What went wrong in each block that runs, by file. One process for all blocks, which has to end by itself. */
function runAll(): Promise<ReadonlyMap<string, readonly string[]>> {
  return new Promise((resolve, reject) => {
    const found = new Map<string, readonly string[]>()
    const child = fork(join(import.meta.dirname, 'run-blocks.ts'), running.map(fileOf), {
      cwd: ROOT,
      execArgv: ['--import', 'tsx'],
      timeout: TOO_LONG_MS,
    })
    child.on('message', ({ file, errors }: Report) => found.set(file, errors))
    child.on('exit', (code, signal) => {
      const last = running[found.size - 1]?.title
      if (code === 0) resolve(found)
      else reject(new Error(`ended with ${signal ?? code} after ${last}: a block keeps the process alive`))
    })
  })
}
