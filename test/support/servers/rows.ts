import { type Door, doors } from './app.js'
import { reference, type ServerFactory } from './index.js'

/*
 * Which rows of a table run on which server. All servers share the code that resolves options and decides.
 * Every row of such a table runs on node:http, with a limit given by its options. On each framework, and for each other
 * way to give a limit, only the first rows run. Tests whose result depends on the framework run all their rows on every
 * server.
 */

export interface Rows {
  <Row extends readonly unknown[] | [unknown]>(rows: readonly Row[], first?: number): readonly Row[]
  <Row>(rows: readonly Row[], first?: number): readonly Row[]
}

/** Returns a function that picks the rows of a table: all on node:http, the first one or ones elsewhere. */
export function rowsOn(server: ServerFactory, door: Door | undefined = doors[0]): Rows {
  const all = server === reference && door === doors[0]
  return <Row>(rows: readonly Row[], first = 1) => (all ? rows : rows.slice(0, first))
}

/** The ways to give a limit that are tested on a server: all on node:http, by its options elsewhere. */
export function doorsOn(server: ServerFactory): readonly Door[] {
  return server === reference ? doors : doors.slice(0, 1)
}
