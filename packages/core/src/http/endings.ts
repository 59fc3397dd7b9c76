import type { Message } from './client.js'
import type { Ending } from './options.js'

/** The part of a response that tells how it ends: a response of node:http. */
export interface Closing {
  readonly statusCode: number
  /** Whether it has been answered already. */
  readonly writableEnded: boolean
  /** Whether all of the answer is out. */
  readonly writableFinished: boolean
  once(event: 'close' | 'finish', listener: () => void): unknown
  off(event: 'close' | 'finish', listener: () => void): unknown
}

/**
 * Calls back once, when the connection of a request closes before its response does: a request behind others on its
 * connection has a response that never hears of the end. The answer takes the listeners away.
 */
export function onClose(response: Closing, { socket }: Message, then: () => void): () => void {
  response.once('close', then)
  socket?.once?.('close', then)
  return () => {
    response.off('close', then)
    socket?.off?.('close', then)
  }
}

/** Calls back once, when the response is out or the client has gone. */
export function onEnd(response: Closing, message: Message, then: (ending: Ending) => void): void {
  let isOver = false
  const end = () => {
    // The socket calls those it has called in this turn though they were taken away.
    if (isOver) return
    isOver = true
    stopListening()
    response.off('finish', end)
    then({ status: response.statusCode, aborted: !response.writableFinished || message.aborted === true })
  }
  const stopListening = onClose(response, message, end)
  response.once('finish', end)
  // Over before anybody listened: while a store decided, or a key was looked for.
  if (response.writableFinished || message.socket?.destroyed) end()
}
