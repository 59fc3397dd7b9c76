import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import { describe, expect, inject, test } from 'vitest'
import { run } from '../support/process.js'

/*
 * Checks the tarballs of the packages with publint and arethetypeswrong.
 */

const { consumer, tarballs } = inject('installed')
/** Resolutions that are not checked for ES modules: `require` loads them, and types.test.ts checks their types. */
const IGNORED_RESOLUTIONS = ['node10', 'node16-cjs']

describe.each(Object.entries(tarballs))('the published %s', (name, tarball) => {
  test('passes publint', async () => {
    const { buffer } = new Uint8Array(await readFile(tarball))
    const { messages, pkg } = await publint({ pack: { tarball: buffer }, level: 'warning', strict: true })
    expect(messages.map(message => formatMessage(message, pkg ?? {}))).toEqual([])
  })

  test('passes arethetypeswrong', async () => {
    const checked = await checkPackage(createPackageFromTarballData(await readFile(tarball)))
    if (checked.types === false) throw new Error('there are no types')
    const isOurs = (problem: object) =>
      !('resolutionKind' in problem && IGNORED_RESOLUTIONS.includes(problem.resolutionKind as string))
    expect(checked.problems.filter(isOurs)).toEqual([])
  })

  test('has a licence, no build state and no workspace version', async () => {
    const files = await run('tar', ['-tzf', tarball], consumer)
    expect(files).toMatch(/package\/LICENSE/)
    expect(files).not.toMatch(/tsbuildinfo/)
    const manifest = await readFile(join(consumer, 'node_modules', name, 'package.json'), 'utf8')
    expect(manifest).not.toMatch(/workspace:|src\/index\.ts/)
  })
})

test('the published @sluice/core has no dependency', async () => {
  const manifest = JSON.parse(
    await readFile(join(consumer, 'node_modules/@sluice/core/package.json'), 'utf8'),
  )
  expect(manifest.dependencies ?? {}).toEqual({})
})
