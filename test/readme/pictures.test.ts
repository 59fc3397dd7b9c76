import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { withPictures } from '../../bench/pictures.js'

test('the pictures in the README are those of real runs today (npm run pictures -- --write)', async () => {
  const readme = await readFile(join(import.meta.dirname, '../../README.md'), 'utf8')
  expect(withPictures(readme)).toBe(readme)
})

test('a README without a place for pictures is an error', () => {
  expect(() => withPictures('# Sluice')).toThrow('<!-- pictures -->')
})
