/**
 * The starts of servers on an embedded store (`backends/embedded/store/starts.ts`), which PostgreSQL keeps for a store
 * migrated to it: a cursor of arrivals names the start in which it was issued.
 */

import { rowsOf, type Steps, type Tables } from './steps.ts';

/** Whether the store can continue after an event number issued in the start: everything stored since is higher. */
export function* followsStart(tables: Tables, id: string, event: number): Steps<boolean> {
  const [start] = yield* rowsOf(
    tables
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
      .where('given.id', '=', id),
  );
  return start !== undefined && (start.next === null || event < start.next);
}
