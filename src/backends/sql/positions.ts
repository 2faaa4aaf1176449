/**
 * How far each log was processed, by partition, and which of its records were lost. The transaction that stores records
 * advances the position; a position that is not where the transaction expects it is a conflict.
 */

import type { Compilable, Kysely } from 'kysely';
import type { LostRecords } from '../../log.ts';
import { processedLogOf } from '../../log/continuity.ts';
import type { SqlStatement } from './database.ts';
import type { StoreProgress } from '../../store-writer.ts';
import { selectPositions, skippedIn } from './ledger.ts';
import type { StoreQueries, StoreTables } from './store-tables.ts';

export async function readProcessedLog({ tables }: StoreQueries, log: string): Promise<StoreProgress> {
  const rows = await selectPositions(tables, log).execute();
  return {
    ...processedLogOf(rows),
    skipped: skippedIn(rows),
  };
}

/** Lost records of all logs. */
export async function countLostRecords({ tables }: StoreQueries): Promise<number> {
  const row = await tables
    .selectFrom('lost_records')
    .select((lost) => lost.fn.sum<number | null>('records').as('records'))
    .executeTakeFirst();
  return row?.records ?? 0;
}

/** Upserts: an operator may have reset the position, so that processing passes the same gap again. */
export function insertLostRecords(
  tables: Kysely<StoreTables>,
  log: string,
  { partition, from, to, records, at }: LostRecords,
): SqlStatement {
  const found = { next_position: to, records, found_at: at };
  return tables
    .insertInto('lost_records')
    .values({ log, partition, first_position: from, ...found })
    .onConflict((conflict) => conflict.columns(['log', 'partition', 'first_position']).doUpdateSet(found));
}

/**
 * Advances a position. Returns no row if the position is not `from`, or the record before it is not the expected one.
 * Before any record is processed, the position is 0.
 */
export function advancePosition(
  tables: Kysely<StoreTables>,
  { log, partition, from, to, lastTraceId, expectedTraceId }: Advance,
): Compilable<{ position: number }> & { executeTakeFirst(): Promise<{ position: number } | undefined> } {
  const reached = { position: to, processed_to: to, last_trace_id: lastTraceId ?? null };
  if (from === 0) {
    return tables
      .insertInto('positions')
      .values({ log, partition, ...reached })
      .onConflict((conflict) =>
        conflict.columns(['log', 'partition']).doUpdateSet(reached).where('positions.position', '=', from),
      )
      .returning('position');
  }
  const advance = tables
    .updateTable('positions')
    .set(reached)
    .where('log', '=', log)
    .where('partition', '=', partition)
    .where('position', '=', from)
    .returning('position');
  return expectedTraceId === undefined ? advance : advance.where('last_trace_id', '=', expectedTraceId);
}

interface Advance {
  readonly log: string;
  readonly partition: number;
  readonly from: number;
  readonly to: number;
  /** Trace id of the last record before `to`. */
  readonly lastTraceId: string | undefined;
  /** Trace id of the last record before `from`; not compared if it is unknown. */
  readonly expectedTraceId: string | undefined;
}
