/**
 * How a list is cut into pages, for every store alike: one row more than the limit is asked for, to know whether there
 * are more, and the cursor names the last row that was given.
 */

import type { Page } from '../store.ts';

export function pageOf<Row, Given>(
  rows: readonly Row[],
  limit: number,
  give: (row: Row) => Given,
  cursorAfter: (row: Row) => string,
): Page<Given> {
  const given = rows.slice(0, limit);
  const last = given.at(-1);
  return { rows: given.map(give), nextCursor: rows.length > limit && last !== undefined ? cursorAfter(last) : null };
}
