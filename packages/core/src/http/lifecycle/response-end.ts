import type { Ending } from '../options.js'
import type { Message, Socket } from '../request/client-key.js'

/** The part of a response that tells how it ends: a response of node:http. */
export interface Closing {
  readonly statusCode: number
  /** Whether it has been answered already. */
  readonly writableEnded: boolean
  /** Whether all of the answer is out. */
  readonly writableFinished: boolean
  end(...args: never[]): unknown
  once(event: 'close' | 'finish', listener: () => void): unknown
  off(event: 'close' | 'finish', listener: () => void): unknown
}

/**
 * Calls back once, when the connection of a request closes before its response does: a request behind others on its
 * connection has a response that never hears of the end. The answer takes the listeners away.
 */
export function onClose(response: Closing, { socket }: Message, then: () => void): () => void {
  response.once('close', then)
  const stopListening = socket === undefined ? undefined : onSocketClose(socket, then)
  return () => {
    response.off('close', then)
    stopListening?.()
  }
}

/** One listener for all requests of a connection, of which there may be many. */
function onSocketClose(socket: Socket, then: () => void): () => void {
  const listening = listeners.get(socket) ?? new Listeners(socket)
  listening.add(then)
  return () => listening.delete(then)
}

class Listeners {
  private readonly socket: Socket
  private readonly those = new Set<() => void>()

  constructor(socket: Socket) {
    this.socket = socket
    listeners.set(socket, this)
    socket.once?.('close', this.tell)
  }

  add(then: () => void): void {
    this.those.add(then)
  }

  delete(then: () => void): void {
    this.those.delete(then)
    if (this.those.size > 0) return
    this.socket.off?.('close', this.tell)
    if (listeners.get(this.socket) === this) listeners.delete(this.socket)
  }

  private readonly tell = (): void => {
    for (const then of [...this.those]) then()
  }
}

const listeners = new WeakMap<Socket, Listeners>()

/** Calls back once, when the response is out or the client has gone. */
export function onEnd(response: Closing, message: Message, then: (ending: Ending) => void): void {
  let isOver = false
  const end = (isOut: boolean) => {
    // The socket calls those it has called in this turn though they were taken away.
    if (isOver) return
    isOver = true
    stopListening()
    response.off('finish', onFinish)
    then({ status: response.statusCode, aborted: !isOut || message.aborted === true })
  }
  // Responses that are injected have not finished by their own account yet.
  const onFinish = () => end(true)
  const stopListening = onClose(response, message, () => end(response.writableFinished))
  response.once('finish', onFinish)
  // Over before anybody listened: while a store decided, or a key was looked for.
  if (response.writableFinished || message.socket?.destroyed) end(response.writableFinished)
}

/**
 * Calls back once, when the response has been answered, though it may have to wait behind others on its connection; or when
 * the client has gone.
 */
export function onAnswered(response: Closing, message: Message, then: (ending: Ending) => void): void {
  let isOver = false
  const answered = (ending: Ending) => {
    if (!isOver) then(ending)
    isOver = true
  }
  const { end } = response
  response.end = function (this: Closing, ...args: never[]) {
    const result = end.apply(this, args)
    answered({ status: response.statusCode, aborted: message.aborted === true })
    return result
  }
  onEnd(response, message, answered)
}
