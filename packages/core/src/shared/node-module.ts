/** A module of Node, where there is one; core is not to need any. */
export function builtin<Module>(name: string): Module | undefined {
  const host = globalThis.process as { getBuiltinModule?(name: string): unknown } | undefined
  return host?.getBuiltinModule?.(name) as Module | undefined
}
