import type { Limiter } from '@sluice/core'
import type { FastifyInstance } from 'fastify'
import { limiting } from './limiting.js'
import type { RouteLimitOptions } from './options.js'
import { limitOf } from './route.js'

/** Adds what the plugin promises to an app: `request.rateLimit`, `app.rateLimit` and `app.limiters`. */
export function decorate(app: FastifyInstance): void {
  app.decorateRequest('rateLimit', undefined)
  app.decorate('limiters', new Map<string, Limiter>())
  app.decorate('rateLimit', function (this: FastifyInstance, options: RouteLimitOptions) {
    const limit = limiting(options)
    onClosing(this, limit.close)
    list(this, limit.limiters)
    return limitOf(limit)
  })
}

/** Adds limiters to `app.limiters`. */
export function list({ limiters }: FastifyInstance, added: readonly Limiter[]): void {
  for (const limiter of added) {
    let name = limiter.name
    for (let number = 2; limiters.has(name) && limiters.get(name) !== limiter; number++)
      name = `${limiter.name}-${number}`
    const listed = limiters as Map<string, Limiter>
    listed.set(name, limiter)
  }
}

/** Calls `close` when the server begins to close. */
export function onClosing(app: FastifyInstance, close: () => void): void {
  app.addHook('preClose', done => {
    close()
    done()
  })
}
