// The size of each entry point in a bundle, minified and gzipped, and its budget.
import { bundle, gzipBytes } from './bundle.js'
import { table } from './rounds.js'
import { BUDGETS } from './size-budgets.js'

const rows = await Promise.all(
  BUDGETS.map(async ({ name, contents, external, bytes, goal = bytes }) => {
    const code = await bundle(contents, external === undefined ? {} : { external })
    return [name, Buffer.byteLength(code), gzipBytes(code), bytes, goal]
  }),
)
table([['entry point', 'minified B', 'gzip B', 'budget B', 'goal B'], ...rows])
