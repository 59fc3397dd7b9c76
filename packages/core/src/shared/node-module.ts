/** A module of Node, or undefined where it is missing: core runs without any. */
export function builtin<Module>(name: string): Module | undefined {
  const host = globalThis.process as { getBuiltinModule?(name: string): unknown } | undefined
  return host?.getBuiltinModule?.(name) as Module | undefined
}
