import { createLimiter, type Duration, tokenBucket } from '@sluice/core'
import request from 'supertest'
import { clock, closing } from '../support/each-test.js'
import type { Door, Rate } from '../support/servers/app.js'
import type {
  AnyRequest,
  App,
  Limit,
  Passage,
  RunningServer,
  ServerFactory,
} from '../support/servers/index.js'

/*
 * Servers with one limit, and what their answers tell of it.
 */

export const PROBLEM = {
  type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
  title: 'Quota Exceeded',
  status: 429,
  'violated-policies': ['default'],
}
export const REFUSED_BODY = JSON.stringify(PROBLEM)

export interface Response {
  readonly headers: Record<string, string>
}

/** Names of the fields that tell of limits. */
export const fieldNames = ({ headers }: Response) =>
  Object.keys(headers).filter(name => /ratelimit|retry-after/.test(name))

export function fields({ headers }: Response) {
  return {
    policy: headers['ratelimit-policy'],
    limit: headers.ratelimit,
    retryAfter: headers['retry-after'],
  }
}

export const exposed = ({ headers }: Response) =>
  (headers['access-control-expose-headers'] ?? '').split(', ').sort()

/** Starts an app on a server until the test is over. */
export function serveOn({ start }: ServerFactory) {
  return async function serve(app: App): Promise<RunningServer> {
    const running = await start(app)
    closing.push(running.close)
    return running
  }
}

/** A limit of one request in 10 seconds, given in one way on one server. */
export function limitedOn(server: ServerFactory, door: Door) {
  const serve = serveOn(server)
  const limit = (options: Partial<Limit> = {}, rate: Partial<Rate> = {}): Limit =>
    door.limitOf({ limit: 1, window: '10s', clock, ...rate }, options)

  /** A server that has let its one request through. */
  async function spent(options: Partial<Limit>, app: App = {}): Promise<RunningServer> {
    const running = await serve({ app: [limit(options)], ...app })
    await request(running.url).get('').expect(200)
    return running
  }

  return { serve, limit, spent }
}

export const ABNORMAL = {
  type: 'https://iana.org/assignments/http-problem-types#abnormal-usage-detected',
  title: 'Abnormal Usage Detected',
  status: 429,
}

export const NO_FIELDS = { policy: undefined, limit: undefined, retryAfter: undefined }

export function bucket(limit: number, window: Duration, name?: string) {
  return createLimiter(tokenBucket({ limit, window }), { name, clock })
}

/** The key of a request: the user that it names. */
export const user = (req: AnyRequest) => String(req.headers['x-user'] ?? 'ann')

export const ask = ({ url }: RunningServer, who = 'ann') => request(url).get('').set('x-user', who)

/** Servers that let each user make one request in ten seconds. */
export function perUserOn(server: ServerFactory) {
  const serve = serveOn(server)
  const limited = (options: Partial<Limit> = {}) =>
    serve({ app: [{ limit: 1, window: '10s', clock, key: user, ...options } as Limit] })
  const starting = (limit: object) => serve({ app: [{ limit: 1, window: '10s', ...limit } as Limit] })
  return { serve, limited, starting }
}

/** Gives the connection the peer address of a header, for the framework to find where it looks. */
export function peerOfHeader({ req }: Passage): void {
  const { 'x-peer': value } = req.headers
  Object.defineProperty(req.socket, 'remoteAddress', {
    value: value === 'none' ? undefined : value,
    configurable: true,
  })
}
