import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { createInterface } from 'node:readline'

/** A Redis server on a free loopback port that writes no files. */
export interface RedisServer {
  readonly port: number
  /** Suspends it: connections stay open and get no answer until it is resumed. */
  pause(): void
  resume(): void
  /** Stops it. It keeps its port for a restart. */
  stop(): Promise<void>
  /** Starts it again, without its data. */
  restart(): Promise<void>
}

export async function startRedis(...options: readonly string[]): Promise<RedisServer> {
  let { port, server } = await startedSomewhere(options)
  async function stop() {
    if (server.exitCode !== null || server.signalCode !== null) return
    server.kill('SIGKILL')
    await once(server, 'exit')
  }
  // Stops the server also when the run is interrupted.
  process.once('exit', () => server.kill('SIGKILL'))
  return {
    port,
    pause: () => server.kill('SIGSTOP'),
    resume: () => server.kill('SIGCONT'),
    stop,
    async restart() {
      await stop()
      server = await started(port, options)
    },
  }
}

/** Another process may take the port after it was found free and before the server listens on it. */
async function startedSomewhere(options: readonly string[], attempts = 5) {
  for (let attempt = 1; ; attempt++) {
    const port = await freePort()
    try {
      return { port, server: await started(port, options) }
    } catch (error) {
      if (attempt === attempts || !String(error).includes('already in use')) throw error
    }
  }
}

async function started(port: number, options: readonly string[]): Promise<ChildProcess> {
  const where = ['--port', String(port), '--bind', '127.0.0.1', '--dir', tmpdir()]
  const args = [...where, '--save', '', '--appendonly', 'no', ...options]
  const server = spawn('redis-server', args, { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(server, 'spawn')
  const lines: string[] = []
  for await (const line of createInterface({ input: server.stdout as NonNullable<typeof server.stdout> })) {
    if (line.includes('Ready to accept connections')) {
      // Output from now on is read and dropped.
      server.stdout?.resume()
      return server
    }
    lines.push(line)
  }
  throw new Error(`redis-server has not started:\n${lines.join('\n')}`)
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address() as AddressInfo
  probe.close()
  await once(probe, 'close')
  return port
}
