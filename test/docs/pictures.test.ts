import { expect, test } from 'vitest'
import { withPictures } from '../../bench/pictures.js'
import { textOf } from './pages.js'

test('the pictures of the algorithms are those of real runs today (npm run pictures -- --write)', () => {
  const page = textOf('docs/algorithms.md')
  expect(withPictures(page)).toBe(page)
})

test('a page without a place for pictures is an error', () => {
  expect(() => withPictures('# Sluice')).toThrow('<!-- pictures -->')
})
