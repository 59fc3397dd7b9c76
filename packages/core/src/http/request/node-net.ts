import type * as Net from 'node:net'
import { builtinFor } from '../../shared/node-module.js'

let net: typeof Net | undefined

/** `node:net`. Throws a coded error that names `option` where the runtime does not have it. */
export function nodeNet(option: string): typeof Net {
  net ??= builtinFor<typeof Net>('node:net', option)
  return net
}
