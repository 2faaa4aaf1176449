/**
 * Records and events for a migration (migration/parts.ts), table by table, oldest first. Events are unpacked from their
 * blocks, with the columns of their record; a chunk ends between two blocks, and its position is the last one. Numbers
 * grow from table to table, so the order is that of arrival.
 */

import { amountText, currencyOfStored } from '../../../views/currency.ts';
import { columnsOf, type Chunk } from '../../../migration/parts.ts';
import { type BlockEvent, unpackBlock } from '../store/event-blocks.ts';
import { ChunkBuilder, type ChunkLimits, positionIn, type StoredValue } from './chunks.ts';
import type { StoreConnection } from '../store/connection.ts';
import { countStored } from '../store/stored-events.ts';

export type TablePart = 'records' | 'events';

export function countInTables(store: StoreConnection, part: TablePart): number {
  let sum = 0;
  for (const { no } of store.tables()) {
    if (part === 'events') sum += countStored(store, no);
    else sum += store.get<{ count: number }>(`SELECT count(*) AS count FROM records_${no}`)?.count ?? 0;
  }
  return sum;
}

export function* chunksOfTables(
  store: StoreConnection,
  part: TablePart,
  after: string | null,
  limits: ChunkLimits,
): Generator<Chunk> {
  const [startTable = 0, startNo = 0] = after === null ? [] : positionIn(after);
  const builder = new ChunkBuilder(part, limits);
  const runs = part === 'events' ? eventRuns : recordRuns;
  let last: readonly [table: number, no: number] | undefined;
  for (const { no: table } of store.tables()) {
    if (table < Number(startTable)) continue;
    for (const { no, rows } of runs(store, table, table === startTable ? Number(startNo) : -1)) {
      for (const row of rows) builder.add(row);
      last = [table, no];
      if (builder.isFull) yield builder.take(last);
    }
  }
  if (last !== undefined && !builder.isEmpty) yield builder.take(last);
}

/** Rows that are migrated together, and the number that identifies them. */
interface Run {
  readonly no: number;
  readonly rows: readonly (readonly StoredValue[])[];
}

function* recordRuns(store: StoreConnection, table: number, after: number): Generator<Run> {
  const columns = columnsOf('records').map(([name]) => name);
  const statement = store.database.prepare(
    `SELECT ${columns.join(', ')} FROM records_${table} WHERE no > ? ORDER BY no`,
  );
  statement.setReturnArrays(true);
  for (const row of statement.iterate(after) as unknown as Iterable<readonly StoredValue[]>) {
    yield { no: row[0] as number, rows: [row] };
  }
}

interface BlockRow {
  readonly first_event: number;
  readonly tenant: number;
  readonly numbers: Uint8Array;
  readonly texts: Uint8Array;
}

interface Surroundings {
  readonly no: number;
  readonly trace_id: Uint8Array;
  readonly received_at: number;
  readonly key_id: string;
}

function* eventRuns(store: StoreConnection, table: number, after: number): Generator<Run> {
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
    yield { no: block.first_event, rows };
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
