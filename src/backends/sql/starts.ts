/**
 * The starts of servers on an embedded store (`backends/embedded/store/starts.ts`), which PostgreSQL keeps for a store
 * migrated to it: a cursor of arrivals names the start in which it was issued.
 */

import type { Kysely } from 'kysely';
import type { StoreTables } from './store-tables.ts';

/** `next`: the first event number of the start after this one; null for the newest. No row for an unknown start. */
export function selectNextStart(tables: Kysely<StoreTables>, id: string) {
  return tables
    .selectFrom('starts as given')
    .select((row) =>
      row
        .selectFrom('starts')
        .select('first_event')
        .whereRef('starts.no', '>', 'given.no')
        .orderBy('starts.no')
        .limit(1)
        .as('next'),
    )
    .where('given.id', '=', id);
}

/** Whether the store can continue after an event number issued in the start: everything stored since is higher. */
export function follows(start: { readonly next: number | null } | undefined, event: number): boolean {
  return start !== undefined && (start.next === null || event < start.next);
}
