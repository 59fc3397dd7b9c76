import { builtinFor } from '../../shared/node-module.js'

type Net = typeof import('node:net')

let net: Net | undefined

/** `node:net`. Throws a coded error that names `option` where the runtime does not have it. */
export function nodeNet(option: string): Net {
  net ??= builtinFor<Net>('node:net', option)
  return net
}
