import { type Door, doors } from './app.js'
import { reference, type ServerFactory } from './index.js'

/*
 * Which rows of a table run on which server. Options are resolved and limits are decided by code that all servers share.
 * Every row of such a table runs on node:http, where a limit is given by its options. The first rows stand for the others
 * on each framework, and for each other way to give a limit. Tests to whose outcome a framework contributes run all their
 * rows on every server.
 */

export interface Rows {
  <Row extends readonly unknown[] | [unknown]>(rows: readonly Row[], first?: number): readonly Row[]
  <Row>(rows: readonly Row[], first?: number): readonly Row[]
}

/** Returns what picks the rows of a table: all of them on node:http, and the first one, or ones, elsewhere. */
export function rowsOn(server: ServerFactory, door: Door | undefined = doors[0]): Rows {
  const all = server === reference && door === doors[0]
  return <Row>(rows: readonly Row[], first = 1) => (all ? rows : rows.slice(0, first))
}

/** The ways to give a limit that are tried on a server: all of them on node:http, and its options elsewhere. */
export function doorsOn(server: ServerFactory): readonly Door[] {
  return server === reference ? doors : doors.slice(0, 1)
}
