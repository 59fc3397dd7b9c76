/*
 * Makes sure that there is a redis-server for the tests. On Debian as root, where packages may be installed, it is
 * installed. Elsewhere one line says what is missing.
 */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'

const MISSING =
  'The tests need redis-server 6.2 or later on the PATH: install the package redis-server (Debian, Ubuntu) or redis (others).'

/** Whether a command succeeds. It may print. */
function succeeds(command, ...args) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  return spawnSync(command, args, { stdio: ['ignore', 'inherit', 'inherit'], env }).status === 0
}

function mayInstall() {
  return existsSync('/etc/debian_version') && process.getuid?.() === 0
}

function install() {
  console.log('Installing the package redis-server ...')
  const isInstalled = () =>
    succeeds('apt-get', 'install', '-y', '-qq', '--no-install-recommends', 'redis-server')
  // Without an up-to-date list of packages, the install fails.
  return isInstalled() || (succeeds('apt-get', 'update', '-qq') && isInstalled())
}

const isThere = () => succeeds('redis-server', '--version')
if (!isThere() && !(mayInstall() && install() && isThere())) {
  console.error(MISSING)
  process.exitCode = 1
}
