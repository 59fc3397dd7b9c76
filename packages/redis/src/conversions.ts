import type { Algorithm } from '@sluice/core'
import { sameArgs } from '@sluice/core/store'
import { OptionsVersion } from './options-version.js'

/*
 * A change of options touches no key. A state on the server carries the args it was written under. When a script meets other
 * args than its own, it replies with them, and is run again with the conversions from those args to the current options. If
 * this process has had options with those args, it knows every change since then and its time. Otherwise another process
 * wrote the state, and it is converted as of now.
 */

/** One step of a conversion, as scripts take it. `false` stands for the time of the script. */
export type Conversion = readonly [
  before: readonly number[],
  after: readonly number[],
  sinceUs: number | false,
]

/** The options that a limiter has had in this process, as far as their states can be converted. */
export class OptionsHistory {
  /** A call keeps the version that it began with, because an update may come before the reply. */
  current: OptionsVersion
  private oldest: OptionsVersion
  private length = 1

  constructor(algorithm: Algorithm) {
    this.current = this.oldest = new OptionsVersion(algorithm, 0)
  }

  /** Makes `next` the current version. */
  add(next: OptionsVersion): void {
    if (next.converts(this.current)) {
      this.current.next = next
      if (this.length < MAX_VERSIONS) this.length++
      else this.oldest = this.oldest.next as OptionsVersion
    } else {
      this.oldest = next
      this.length = 1
    }
    this.current = next
  }

  /** How to convert a state with these args to `version`. */
  conversionsFrom(args: readonly number[], version: OptionsVersion): readonly Conversion[] {
    const writer = this.writerOf(args, version)
    const known = writer && conversionsBetween(writer, version)
    return known ?? [[[...args, ...version.twin.constants(args)], version.parameters, false]]
  }

  /** The latest version before another one that has these args. */
  private writerOf(args: readonly number[], until: OptionsVersion): OptionsVersion | undefined {
    let latest: OptionsVersion | undefined
    for (
      let version: OptionsVersion | undefined = this.oldest;
      version !== undefined && version !== until;
      version = version.next
    )
      if (sameArgs(version.algorithm, { args })) latest = version
    return latest
  }
}

/** The conversions from one version to a later one; undefined if states of the first are not converted to the other. */
export function conversionsBetween(
  from: OptionsVersion,
  to: OptionsVersion,
): readonly Conversion[] | undefined {
  const conversions: Conversion[] = []
  let version = from
  for (; version !== to && version.next !== undefined; version = version.next) {
    const { parameters, sinceUs } = version.next
    conversions.push([version.parameters, parameters, Number.isFinite(sinceUs) && sinceUs])
  }
  return version === to ? conversions : undefined
}

/** How often a call is made again because other processes convert the state in between. */
export const CONVERT_ATTEMPTS = 10

export function changedTooFast(): Error {
  return new Error('other processes with other options write the key faster than it can be converted')
}

/** States of older versions are converted as of now. */
const MAX_VERSIONS = 256
