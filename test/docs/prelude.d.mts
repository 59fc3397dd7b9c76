import type * as onExpress from '@sluice/express'
import type { Application, RequestHandler } from 'express'

/* What blocks of the README take for granted. */

declare global {
  const app: Application
  const rateLimit: typeof onExpress.rateLimit

  const importItems: RequestHandler
  const items: RequestHandler
  const login: RequestHandler
  const report: RequestHandler
  const savePhoto: RequestHandler
  const saveVideo: RequestHandler

  namespace Express {
    interface Request {
      user: { id: string; plan: string; isStaff: boolean }
    }
  }
}
