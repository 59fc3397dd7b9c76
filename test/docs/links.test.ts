import { existsSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { describe, expect, test } from 'vitest'
import { type Page, pages, ROOT, textOf } from './pages.js'

describe('links and paths lead somewhere:', () => {
  test.each(pages)('$path', page => {
    const broken = [...linksIn(page), ...pathsIn(page)].filter(target => !resolves(page, target))
    expect(broken).toEqual([])
  })
})

test('every page of docs is in the index', () => {
  const linked = linksIn({ path: 'docs/README.md', text: textOf('docs/README.md') })
  const targets = linked.map(link => normalize(join('docs', link)))
  const manual = pages.filter(({ path }) => path.startsWith('docs/') && path !== 'docs/README.md')
  expect(targets).toEqual(expect.arrayContaining(manual.map(({ path }) => path)))
})

test('the README is short', () => {
  expect(textOf('README.md').split('\n').length).toBeLessThanOrEqual(250)
})

/** Targets of links; those to other hosts are not looked up. */
function linksIn({ text }: Page): string[] {
  const links = [...withoutCode(text).matchAll(/\]\(([^)\s]+)\)/g)].map(([, target]) => target as string)
  return links.filter(target => !/^[a-z]+:/.test(target))
}

/** Files and folders of the repository that a page names in code, from the top. */
function pathsIn({ text }: Page): string[] {
  const paths = text.matchAll(/`((?:docs|examples|packages|test|bench)\/[\w./@-]+)`/g)
  return [...paths].map(([, path]) => `/${path}`)
}

function resolves(page: Page, target: string): boolean {
  const [file = '', anchor] = target.split('#')
  const path = file.startsWith('/')
    ? file.slice(1)
    : file === ''
      ? page.path
      : normalize(join(dirname(page.path), file))
  if (!existsSync(join(ROOT, path))) return false
  return anchor === undefined || anchorsOf(textOf(path)).includes(anchor)
}

/** Headings as the hosts of repositories make anchors of them. */
function anchorsOf(text: string): string[] {
  const seen = new Map<string, number>()
  return [...withoutCode(text).matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) => {
    const anchor = heading
      .toLowerCase()
      .replace(/[^\w -]/g, '')
      .replaceAll(' ', '-')
    const times = seen.get(anchor) ?? 0
    seen.set(anchor, times + 1)
    return times === 0 ? anchor : `${anchor}-${times}`
  })
}

function withoutCode(text: string): string {
  return text.replace(/^```[\s\S]*?^```$/gm, '')
}
