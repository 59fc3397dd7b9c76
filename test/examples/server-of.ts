import { join } from 'node:path'
import { inject } from 'vitest'
import { Running } from '../support/process.js'

/** The folder of an example outside the workspace, installed with the packed packages. */
export function folderOf(example: string): string {
  return join(inject('installed').examples, example)
}

/** Returns a function that runs the server of an installed example during a callback. */
export function serverOf(example: string) {
  return async function withServer(visit: (url: string) => Promise<void>, env: Record<string, string> = {}) {
    const server = new Running(['server.js'], folderOf(example), { PORT: '0', ...env })
    try {
      const [, url] = (await server.printed(/listening on (\S+)/)) as unknown as [string, string]
      await visit(url)
    } finally {
      await server.stop()
    }
  }
}
