import { coded } from './errors.js'

/** A module of Node; undefined where the runtime has none. Core imports no Node module in any other way. */
export function builtin<Module>(name: string): Module | undefined {
  const host = globalThis.process as { getBuiltinModule?(name: string): unknown } | undefined
  return host?.getBuiltinModule?.(name) as Module | undefined
}

/** A module of Node that an option needs. Throws an error that names the option where the runtime has none. */
export function builtinFor<Module>(name: string, option: string): Module {
  const found = builtin<Module>(name)
  if (found !== undefined) return found
  throw coded(
    new TypeError(`${option}: needs ${name}, which this runtime does not have`),
    'SLUICE_INVALID_OPTION',
    option,
  )
}
