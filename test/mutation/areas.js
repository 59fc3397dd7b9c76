/*
 * The measured folders of packages/core/src, as globs. The sample stays the same when a file moves within its area.
 * `share` is the tested share of all mutants.
 */
export const AREAS = [
  { name: 'algorithms', share: 0.06, files: ['algorithms/**'] },
  {
    name: 'key table',
    share: 0.12,
    files: ['store/memory/**', 'store/{blocked,conversions}.ts'],
  },
  {
    name: 'guard',
    share: 0.08,
    files: [
      'http/{guard,resolve-options}.ts',
      'http/lifecycle/**',
      'http/response/{report,refusal,verdict}.ts',
    ],
  },
  {
    name: 'waiting',
    share: 0.1,
    files: ['limiter/waiting*', 'limiter/joint/**'],
  },
]

/** Strings are not mutated: a test should not depend on the words of an error. */
export const EXCLUDED = ['StringLiteral']
