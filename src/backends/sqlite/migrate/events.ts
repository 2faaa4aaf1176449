/**
 * Records and events for a migration (migration/parts.ts), table by table, oldest first. Events are unpacked from their
 * blocks, with the columns of their record; a chunk ends between two blocks, and its position is the last one. Numbers
 * grow from table to table, so the order is that of arrival.
 */

import { amountText, currencyOfStored } from '../../../views/currency.ts';
import { columnsOf } from '../../../migration/parts.ts';
import { type BlockEvent, unpackBlock } from '../store/event-blocks.ts';
import { positionIn, type RowGroup, type StoredValue } from './chunks.ts';
import type { StoreConnection } from '../store/connection.ts';
import { type BlockRow, countStored } from '../store/stored-events.ts';

export type TablePart = 'records' | 'events';

export function countInTables(store: StoreConnection, part: TablePart): number {
  let sum = 0;
  for (const { no } of store.tables()) {
    if (part === 'events') sum += countStored(store, no);
    else sum += store.get<{ count: number }>(`SELECT count(*) AS count FROM records_${no}`)?.count ?? 0;
  }
  return sum;
}

export function* rowsOfTables(store: StoreConnection, part: TablePart, after: string | null): Generator<RowGroup> {
  const [startTable = 0, startNo = 0] = after === null ? [] : positionIn(after).map(Number);
  const groups = part === 'events' ? eventGroups : recordGroups;
  for (const { no: table } of store.tables()) {
    if (table >= startTable) yield* groups(store, table, table === startTable ? startNo : -1);
  }
}

function* recordGroups(store: StoreConnection, table: number, after: number): Generator<RowGroup> {
  const columns = columnsOf('records').map(([name]) => name);
  const statement = store.database.prepare(
    `SELECT ${columns.join(', ')} FROM records_${table} WHERE no > ? ORDER BY no`,
  );
  statement.setReturnArrays(true);
  for (const row of statement.iterate(after) as unknown as Iterable<readonly StoredValue[]>) {
    yield { rows: [row], position: [table, row[0] as number] };
  }
}

interface Surroundings {
  readonly no: number;
  readonly trace_id: Uint8Array;
  readonly received_at: number;
  readonly key_id: string;
}

function* eventGroups(store: StoreConnection, table: number, after: number): Generator<RowGroup> {
  const blocks = store.iterate<BlockRow>(
    `SELECT first_event, tenant, numbers, texts FROM events_${table} WHERE first_event > ? ORDER BY first_event`,
    after,
  );
  let around: Surroundings | undefined;
  for (const block of blocks) {
    const rows: StoredValue[][] = [];
    for (const event of unpackBlock(block.tenant, block)) {
      // Events of a record are consecutive.
      if (around?.no !== event.record) around = recordOf(store, table, event);
      rows.push(rowOf(event, around));
    }
    yield { rows, position: [table, block.first_event] };
  }
}

function recordOf(store: StoreConnection, table: number, event: BlockEvent): Surroundings {
  const row = store.get<Surroundings>(
    `SELECT no, trace_id, received_at, key_id FROM records_${table} WHERE no = ?`,
    event.record,
  );
  if (row === undefined) throw new Error(`event ${event.no} is stored without its record`);
  return row;
}

/** In the order of MIGRATED_PARTS. */
function rowOf(event: BlockEvent, { trace_id, received_at, key_id }: Surroundings): StoredValue[] {
  return [
    event.no,
    event.tenant,
    event.node,
    received_at,
    trace_id,
    event.userIndex,
    event.timestamp,
    key_id,
    event.eventIndex,
    event.name,
    amountText(event.revenue),
    currencyOfStored(event.revenue, event.properties),
    amountText(event.value),
    event.properties,
  ];
}
