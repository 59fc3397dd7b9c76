const given = new Set<string>()

/** Emits a process warning once per code; does nothing where there is no `process`. */
export function warnOnce(code: string, message: string): void {
  if (given.has(code)) return
  given.add(code)
  globalThis.process?.emitWarning?.(message, { type: 'SluiceWarning', code })
}
