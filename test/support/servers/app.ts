import { once } from 'node:events'
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Decision } from '@sluice/core'
import type { LimitDoor, LimiterDoor, Refusal, RequestOptions } from '@sluice/core/http'

/*
 * One way to write an app with rate limits, in no framework's words. Each framework has a factory that builds it.
 */

/** What the requests of every framework have in common; callbacks of limits are given one. */
export interface AnyRequest {
  readonly headers: IncomingHttpHeaders
}

/** A rate limit in no framework's words. */
export type Limit = (LimitDoor | LimiterDoor<[AnyRequest]>) &
  Omit<RequestOptions<[AnyRequest]>, 'onRefused'> & {
    readonly onRefused?: (passage: Passage, refusal: Refusal) => unknown
  }

/** One request on its way through the app. */
export interface Passage {
  readonly req: IncomingMessage
  readonly res: ServerResponse
  /** What the limiter has left where users of the framework look. */
  readonly decision: Decision | undefined
  /** Sets a field as an app would, replacing what is there. */
  setHeader(name: string, value: string | string[]): void
  /** Answers with JSON as an app would. */
  json(body: unknown): unknown
}

/** An app with one resource, `/api/items`, for every method. */
export interface App {
  /** Limits on the whole app, on the router at `/api`, and on the route itself. */
  readonly app?: readonly Limit[]
  readonly router?: readonly Limit[]
  readonly route?: readonly Limit[]
  /** What happens to a request before any limiter sees it; the request goes on afterwards. */
  readonly before?: (passage: Passage) => void
  /** Answers a request that was let through; default `{"ok":true}`. */
  readonly handler?: (passage: Passage) => unknown
}

export interface RunningServer {
  /** The address of the resource. */
  readonly url: string
  /** What has reached the framework's error handler, in order. */
  readonly errors: readonly unknown[]
  /** How often the handler has run. */
  readonly handled: number
  close(): Promise<void>
}

export interface ServerFactory {
  readonly name: string
  /** Starts the app on a free port of 127.0.0.1. */
  start(app: App): Promise<RunningServer>
}

/** What happened on a server. */
export class Log {
  readonly errors: unknown[] = []
  handled = 0
}

/** Listens on a free port. */
export async function running(server: Server, log: Log): Promise<RunningServer> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/api/items`,
    errors: log.errors,
    get handled() {
      return log.handled
    },
    close() {
      const closed = new Promise<void>(resolve => server.close(() => resolve()))
      server.closeAllConnections()
      return closed
    },
  }
}
