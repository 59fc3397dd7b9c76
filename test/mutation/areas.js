/*
 * What is measured: folders of packages/core/src, by globs. Files may move within an area, or between the names that
 * are listed, and the sample stays the same. Share is the part of all mutants that is tried.
 */
export const AREAS = [
  { name: 'algorithms', share: 0.06, files: ['algorithms/**', '{algorithm,decision}.ts'] },
  {
    name: 'key table',
    share: 0.12,
    files: [
      'store/memory/**',
      'store/{penalties,blocked,conversions}.ts',
      '{memory-ledger,memory-store,slots,subject,penalties,blocked,eras}.ts',
    ],
  },
  {
    name: 'guard',
    share: 0.08,
    files: [
      'http/{guard,refusal,resolve-options}.ts',
      'http/lifecycle/**',
      'http/response/{report,refusal}.ts',
      'http/{rules,verdicts,charges,meetings,penalized,endings,made-per-request}.ts',
    ],
  },
  {
    name: 'waiting',
    share: 0.1,
    files: ['limiter/waiting*', 'limiter/{waiting,joint}/**', '{waiting,combine}.ts', 'joint-*.ts'],
  },
]

/** Texts are not tried: the tests are not to depend on how an error is worded. */
export const EXCLUDED = ['StringLiteral']
