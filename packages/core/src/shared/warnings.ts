const given = new Set<string>()

/** Emits a process warning once per code; does nothing where there is no `process`. A text that is to be made is not twice. */
export function warnOnce(code: string, message: string | (() => string)): void {
  if (given.has(code)) return
  given.add(code)
  const text = typeof message === 'string' ? message : message()
  globalThis.process?.emitWarning?.(text, { type: 'SluiceWarning', code })
}
