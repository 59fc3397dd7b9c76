import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'

/** Runs a command to its end; throws with its output when it fails. */
export async function run(command: string, args: readonly string[], cwd: string): Promise<string> {
  try {
    const { stdout } = await promisify(execFile)(command, args, { cwd, maxBuffer: 2 ** 24 })
    return stdout
  } catch (error) {
    const { stdout, stderr } = error as { stdout?: string; stderr?: string }
    throw new Error(`${command} ${args.join(' ')} failed\n${stdout}\n${stderr}`, { cause: error })
  }
}

/** A running node process, its output, and how to stop it. */
export class Running {
  output = ''
  readonly #child: ChildProcess

  constructor(args: readonly string[], cwd: string, env: Record<string, string> = {}) {
    this.#child = spawn(process.execPath, args, { cwd, env: { ...process.env, ...env } })
    for (const stream of [this.#child.stdout, this.#child.stderr])
      stream?.setEncoding('utf8').on('data', text => {
        this.output += text
        this.#child.emit('printed')
      })
    this.#child.once('close', () => this.#child.emit('printed'))
  }

  /** Waits for output that matches; throws if the process ends without. */
  async printed(pattern: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      const match = pattern.exec(this.output)
      if (match !== null) return match
      if (this.#child.exitCode !== null) throw new Error(`ended without ${pattern}:\n${this.output}`)
      await once(this.#child, 'printed')
    }
  }

  /** Stops it by its pid and returns how it ended. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      this.#child.kill(signal)
      await once(this.#child, 'close')
    }
    return this.#child.exitCode
  }
}
