const warned = new Set<string>()

/**
 * Emits a process warning, once per code; does nothing where there is no `process`. A function is called for the message
 * only if the warning is emitted.
 */
export function warnOnce(code: string, message: string | (() => string)): void {
  if (warned.has(code)) return
  warned.add(code)
  const text = typeof message === 'string' ? message : message()
  globalThis.process?.emitWarning?.(text, { type: 'SluiceWarning', code })
}
