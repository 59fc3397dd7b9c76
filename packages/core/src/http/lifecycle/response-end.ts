import type { Ending } from '../options.js'
import type { Message, ObservedResponse, Socket } from '../types.js'

/**
 * Calls `then` once if the response or its connection closes before the response ends. A pipelined request needs both: its
 * response emits no event when the connection closes. Returns a function that removes the listeners.
 */
export function onClose(response: ObservedResponse, { socket }: Message, then: () => void): () => void {
  response.once('close', then)
  const stopListening = socket === undefined ? undefined : onSocketClose(socket, then)
  return () => {
    response.off('close', then)
    stopListening?.()
  }
}

/** Adds one listener per connection, however many of its requests are in progress. */
function onSocketClose(socket: Socket, then: () => void): () => void {
  const callbacks = closeCallbacks.get(socket) ?? new CloseCallbacks(socket)
  callbacks.add(then)
  return () => callbacks.delete(then)
}

class CloseCallbacks {
  readonly #socket: Socket
  readonly #callbacks = new Set<() => void>()

  constructor(socket: Socket) {
    this.#socket = socket
    closeCallbacks.set(socket, this)
    socket.once?.('close', this.#callAll)
  }

  add(then: () => void): void {
    this.#callbacks.add(then)
  }

  delete(then: () => void): void {
    this.#callbacks.delete(then)
    if (this.#callbacks.size > 0) return
    this.#socket.off?.('close', this.#callAll)
    if (closeCallbacks.get(this.#socket) === this) closeCallbacks.delete(this.#socket)
  }

  readonly #callAll = (): void => {
    for (const then of [...this.#callbacks]) then()
  }
}

const closeCallbacks = new WeakMap<Socket, CloseCallbacks>()

/** Calls `then` once, when the whole response has been sent or the client has disconnected. */
export function onEnd(response: ObservedResponse, message: Message, then: (ending: Ending) => void): void {
  let isOver = false
  const end = (isSent: boolean) => {
    // An event that is being emitted still reaches listeners that were removed meanwhile.
    if (isOver) return
    isOver = true
    stopListening()
    response.off('finish', onFinish)
    then({ status: response.statusCode, aborted: !isSent || message.aborted === true })
  }
  // In its 'finish' event an injected response (light-my-request) does not report `writableFinished` yet.
  const onFinish = () => end(true)
  const stopListening = onClose(response, message, () => end(response.writableFinished))
  response.once('finish', onFinish)
  // It may have ended before, while a store or a callback was awaited.
  if (response.writableFinished || message.socket?.destroyed) end(response.writableFinished)
}

/**
 * Calls `then` once, when `end` of the response is called or the client has disconnected. That is earlier than `onEnd` for a
 * response that waits behind others on its connection.
 */
export function onAnswered(
  response: ObservedResponse,
  message: Message,
  then: (ending: Ending) => void,
): void {
  let isOver = false
  const answered = (ending: Ending) => {
    if (!isOver) then(ending)
    isOver = true
  }
  const { end } = response
  response.end = function (this: ObservedResponse, ...args: never[]) {
    const result = end.apply(this, args)
    answered({ status: response.statusCode, aborted: message.aborted === true })
    return result
  }
  onEnd(response, message, answered)
}
