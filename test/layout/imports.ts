import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'

/** A file of a package and what it imports, types included. */
export interface SourceFile {
  /** The path below `src`, such as `store/memory/slots.ts`. */
  readonly path: string
  /** Files of the same package that it imports, as paths below `src`. */
  readonly imports: readonly string[]
  /** Modules that it imports at run time from elsewhere. */
  readonly modules: readonly string[]
}

/** Reads the import graph of a package. */
export function sourceFiles(src: string): readonly SourceFile[] {
  return readdirSync(src, { recursive: true, encoding: 'utf8' })
    .filter(path => path.endsWith('.ts'))
    .map(path => {
      const statements = [...readFileSync(join(src, path), 'utf8').matchAll(IMPORT)].map(
        ([, kind, module]) => ({ isType: kind === ' type', module: module as string }),
      )
      const isOwn = (module: string) => module.startsWith('.')
      return {
        path,
        imports: statements
          .filter(({ module }) => isOwn(module))
          .map(({ module }) => relative(src, join(src, dirname(path), module)).replace(/\.js$/, '.ts')),
        modules: statements
          .filter(({ isType, module }) => !isType && !isOwn(module))
          .map(({ module }) => module),
      }
    })
}

/** `import … from '…'`, `export … from '…'`, `import '…'` and `import('…')`. */
const IMPORT = /^(?:import|export)( type)?\s(?:[^'"]*?\sfrom\s)?'([^']+)'|\bimport\('([^']+)'\)/gm

/** The cycles of an import graph, each as the list of its files. */
export function cycles(files: readonly SourceFile[]): readonly (readonly string[])[] {
  const importsOf = new Map(files.map(({ path, imports }) => [path, imports]))
  const found: string[][] = []
  const finished = new Set<string>()
  const visit = (path: string, trail: readonly string[]): void => {
    const start = trail.indexOf(path)
    if (start !== -1) found.push(trail.slice(start))
    if (start !== -1 || finished.has(path)) return
    for (const next of importsOf.get(path) ?? []) visit(next, [...trail, path])
    finished.add(path)
  }
  for (const { path } of files) visit(path, [])
  return found
}
