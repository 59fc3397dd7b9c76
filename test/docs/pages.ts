import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

export const ROOT = join(import.meta.dirname, '../..')

/** A Markdown page of the repository. */
export interface Page {
  /** Its path from the top of the repository. */
  readonly path: string
  readonly text: string
}

/** Every page that users and contributors read: at the top, in docs, and the README of each package and example. */
export const pages: readonly Page[] = [
  ...readdirSync(ROOT),
  ...filesIn('docs'),
  ...['packages', 'examples'].flatMap(folder =>
    readdirSync(join(ROOT, folder)).map(name => `${folder}/${name}/README.md`),
  ),
]
  .filter(path => path.endsWith('.md') && existsSync(join(ROOT, path)))
  .toSorted()
  .map(path => ({ path, text: readFileSync(join(ROOT, path), 'utf8') }))

function filesIn(folder: string): string[] {
  const files = readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
  return files.map(file => join(folder, file))
}

/** The text of a page. Throws where there is none. */
export function textOf(path: string): string {
  const page = pages.find(page => page.path === path)
  if (page === undefined) throw new Error(`no page ${path}`)
  return page.text
}

/*
 * Blocks of code. Fenced blocks of js and ts are compiled. A comment before a block says what else is to be done with it:
 *
 *     <!-- run -->               the block is a program: it runs, prints no error or warning, and ends
 *     <!-- after: previous -->   the block continues the block before it
 */

const COMMENTS = ['run', 'after: previous']
const COMPILED = ['js', 'ts']
const UNCHECKED = ['text', 'sh', 'json', 'http', 'lua']

/** A fenced block of JavaScript or TypeScript. */
export interface Block {
  /** The page, the line of the fence and the heading above it. */
  readonly title: string
  readonly path: string
  readonly extension: 'mjs' | 'mts'
  readonly isRun: boolean
  /** The page with every line blank except those of the block, so that line numbers in errors are those of the page. */
  readonly text: string
}

export function blocksOf({ path, text }: Page): Block[] {
  const lines = text.split('\n')
  const blocks: Block[] = []
  let heading = ''
  let before = lines.map(() => '')
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index] as string
    heading = /^#+ (.*)/.exec(line)?.[1] ?? heading
    const language = /^ *```(.*)$/.exec(line)?.[1]
    if (language === undefined) continue
    const end = lines.indexOf('```', index + 1)
    if (end === -1 || ![...COMPILED, ...UNCHECKED].includes(language))
      throw new Error(`${path}:${index + 1}: ${line}`)
    if (COMPILED.includes(language)) {
      const comment = /^<!-- (.*) -->$/.exec(lines[index - 1] ?? '')?.[1]
      if (comment !== undefined && !COMMENTS.includes(comment))
        throw new Error(`${path}:${index}: unknown comment ${comment}`)
      const base = comment === 'after: previous' ? before : lines.map(() => '')
      before = base.map((text, at) => (at > index && at < end ? (lines[at] as string) : text))
      blocks.push({
        title: `${path}:${index + 1}, ${heading}`,
        path,
        extension: language === 'js' ? 'mjs' : 'mts',
        isRun: comment === 'run',
        text: before.join('\n'),
      })
    }
    index = end
  }
  return blocks
}

/** The part of a page under a heading, up to the next heading. */
export function sectionOf(path: string, heading: string): string {
  const section = textOf(path)
    .split(/^#+ /m)
    .find(section => section.startsWith(`${heading}\n`))
  if (section === undefined) throw new Error(`${path} has no heading ${heading}`)
  return section
}

/** The names in code in the first column of every table of a section. */
export function namesIn(section: string): string[] {
  return firstCells(section).flatMap(cell =>
    [...cell.matchAll(/`([\w:-]+)[`(]/g)].map(([, name]) => name as string),
  )
}

/** The first cell of each row that has code in it, which those of table heads have not. */
function firstCells(section: string): string[] {
  return [...section.matchAll(/^\| ([^|]*`[^|]*) \|/gm)].map(([, cell]) => cell as string)
}
