/**
 * Runs contenders in turn, round after round, so that other load on the machine affects all of them equally.
 *
 * @template {string} Name
 * @param {Record<Name, () => number | Promise<number>>} contenders each returns what it measured
 * @param {number} count rounds; one more comes first, as a warm-up
 * @returns {Promise<Record<Name, number>>} the median of each
 */
export async function medians(contenders, count) {
  const names = /** @type {Name[]} */ (Object.keys(contenders))
  /** @type {Map<Name, number[]>} */
  const results = new Map(names.map(name => [name, []]))
  for (let round = 0; round <= count; round++) {
    // Every round starts with another contender, so that no contender always runs after the same one.
    for (const turn of names.keys()) {
      const name = /** @type {Name} */ (names[(turn + round) % names.length])
      const result = await contenders[name]()
      if (round > 0) results.get(name)?.push(result)
    }
  }
  const entries = [...results].map(([name, values]) => [name, median(values)])
  return /** @type {Record<Name, number>} */ (Object.fromEntries(entries))
}

/** @param {number[]} values */
export function median(values) {
  return /** @type {number} */ (values.toSorted((a, b) => a - b)[values.length >> 1])
}

/** @param {(string | number)[][]} rows */
export function table(rows) {
  for (const row of rows)
    console.log(
      row
        .map((cell, column) => (column === 0 ? String(cell).padEnd(34) : String(cell).padStart(16)))
        .join(''),
    )
}
