import { readFileSync } from 'node:fs'
import { join } from 'node:path'

export const ROOT = join(import.meta.dirname, '../..')
export const README = readFileSync(join(ROOT, 'README.md'), 'utf8')

/*
 * What the README says, to be compared with what there is. A comment before a block of code says more than a reader needs:
 *
 *     <!-- run -->               it is a program: it runs, prints no error or warning, and ends
 *     <!-- after: previous -->   it goes on where the block before it ends
 */

const COMMENTS = ['run', 'after: previous']

/** A fenced block of JavaScript or TypeScript. */
export interface Block {
  readonly title: string
  readonly extension: 'mjs' | 'mts'
  readonly isRun: boolean
  /** The README with every line blank but those of the block, so that both count lines alike. */
  readonly text: string
}

export function blocksOf(markdown: string): Block[] {
  const lines = markdown.split('\n')
  const blocks: Block[] = []
  let heading = ''
  let before = lines.map(() => '')
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index] as string
    heading = /^#+ (.*)/.exec(line)?.[1] ?? heading
    const language = /^```(.*)$/.exec(line)?.[1]
    if (language === undefined) continue
    const end = lines.indexOf('```', index + 1)
    if (end === -1 || !['js', 'ts', 'text'].includes(language)) throw new Error(`line ${index + 1}: ${line}`)
    if (language !== 'text') {
      const comment = /^<!-- (.*) -->$/.exec(lines[index - 1] ?? '')?.[1]
      if (comment !== undefined && !COMMENTS.includes(comment)) throw new Error(`line ${index}: ${comment}`)
      const base = comment === 'after: previous' ? before : lines.map(() => '')
      before = base.map((text, at) => (at > index && at < end ? (lines[at] as string) : text))
      blocks.push({
        title: `${heading}, line ${index + 1}`,
        extension: language === 'js' ? 'mjs' : 'mts',
        isRun: comment === 'run',
        text: before.join('\n'),
      })
    }
    index = end
  }
  return blocks
}

/** The names in code of the first column of every table under a heading. */
export function namesUnder(heading: string): string[] {
  const section = README.split(/^#+ /m).find(section => section.startsWith(`${heading}\n`)) ?? ''
  return cells(section).flatMap(cell => [...cell.matchAll(/`(\w+)[`(]/g)].map(([, name]) => name as string))
}

/** The first cells of rows, those of the heads left out. */
function cells(section: string): string[] {
  return [...section.matchAll(/^\| ([^|]*`[^|]*) \|/gm)].map(([, cell]) => cell as string)
}
