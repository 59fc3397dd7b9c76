import { createHash } from 'node:crypto'

/** A Lua script, and the hash by which a server knows it. */
export class Script {
  readonly text: string
  readonly sha: string

  constructor(text: string) {
    this.text = text
    this.sha = createHash('sha1').update(text).digest('hex')
  }
}
