/**
 * Writes records with their events and rejected users, one statement a table per batch (for events COPY, the fastest
 * way). Events of a record have consecutive numbers; each tenant's range of numbers is recorded in `arrivals`, by which
 * readers follow new events. Amounts keep the digits that were sent: revenue and value are stored as JSON.
 *
 * A record that is stored already is recognised by its trace and first user, for as long as it is stored. Nothing is looked
 * up for that: the insert finds it, and the transaction is tried again without the copy (`findStored`).
 */

import { type RecordHeader, type RecordToStore, AlreadyStoredError } from '../../store-writer.ts';
import { amountText } from '../../views/currency.ts';
import { compareBuckets, type CountedBucket } from '../../views/event-counts.ts';
import { type KeptRejection, keptRejections } from '../../views/kept-rejections.ts';
import { notesOf } from '../../views/trace.ts';
import { type PostgresClient, type Queryable, rowOf } from './pool.ts';
import { bytea, insertInto, int4, int8, numeric, RowsStatement, text, uuid } from './rows-statement.ts';
import { dayOf } from './store-days.ts';
import { NUMBERS_PER_BLOCK } from './store-schema.ts';
import type { NumberedBatch } from './write-changes.ts';

interface RecordRow {
  readonly no: number;
  readonly tenant: number;
  readonly record: RecordToStore;
  readonly processedAt: number;
  readonly firstEvent: number;
  readonly events: number;
}

const INSERT_RECORDS = insertInto<RecordRow>(
  'records',
  {
    no: int8(({ no }) => no),
    tenant: int4(({ tenant }) => tenant),
    trace_id: uuid(({ record }) => record.header.traceId),
    received_at: int8(({ record }) => record.header.receivedAt),
    processed_at: int8(({ processedAt }) => processedAt),
    first_user_index: int4(({ record }) => record.header.firstUserIndex),
    users_accepted: int4(({ record }) => record.header.usersAccepted),
    users_rejected: int4(({ record }) => record.header.usersRejected),
    first_event: int8(({ firstEvent }) => firstEvent),
    events: int4(({ events }) => events),
    duplicate_of: uuid(({ record }) => record.duplicateOf),
    key_id: text(({ record }) => record.header.keyId),
    notes: text(({ record }) => notesOf(record)),
  },
  'ON CONFLICT DO NOTHING',
);

const FIND_STORED = new RowsStatement<RecordHeader>(
  'find_stored_records',
  {
    trace_id: uuid(({ traceId }) => traceId),
    first_user_index: int4(({ firstUserIndex }) => firstUserIndex),
    users_rejected: int4(({ usersRejected }) => usersRejected),
    received_at: int8(({ receivedAt }) => receivedAt),
  },
  (rows) => `
    SELECT q.ordinal FROM ${rows}
    CROSS JOIN LATERAL (
      (SELECT 1 FROM records WHERE records.trace_id = q.trace_id AND records.received_at = q.received_at
         AND records.first_user_index = q.first_user_index AND records.users_rejected = q.users_rejected
       LIMIT 1)
      UNION ALL
      (SELECT 1 FROM dead_letters WHERE dead_letters.trace_id = q.trace_id
         AND dead_letters.first_user_index = q.first_user_index LIMIT 1)
    ) AS found`,
);

const COPY_EVENTS = `
  COPY events (no, tenant, node, received_at, timestamp, trace_id, key_id, user_index, event_index, event_name, revenue,
    currency, value, properties) FROM STDIN`;
/** Limit of the events copied at a time, in characters. */
const COPY_LENGTH_MAX = 16 * 1024 * 1024;

interface ArrivalRange {
  readonly tenant: number;
  readonly firstEvent: number;
  events: number;
  receivedAtMin: number;
  receivedAtMax: number;
}

const INSERT_ARRIVALS = new RowsStatement<ArrivalRange>(
  'insert_arrivals',
  {
    tenant: int4(({ tenant }) => tenant),
    first_event: int8(({ firstEvent }) => firstEvent),
    events: int4(({ events }) => events),
    received_at_min: int8(({ receivedAtMin }) => receivedAtMin),
    received_at_max: int8(({ receivedAtMax }) => receivedAtMax),
  },
  (rows, names) => `
    INSERT INTO arrivals (tx, ${names}) SELECT (SELECT nextval('arrival_numbers')), ${names} FROM ${rows}`,
);

interface RejectionRow {
  readonly tenant: number;
  readonly header: RecordHeader;
  readonly kept: KeptRejection;
}

const INSERT_REJECTIONS = insertInto<RejectionRow>(
  'rejections',
  {
    tenant: int4(({ tenant }) => tenant),
    received_at: int8(({ header }) => header.receivedAt),
    trace_id: uuid(({ header }) => header.traceId),
    user_index: int4(({ kept }) => kept.userIndex),
    message: text(({ kept }) => kept.message),
    reason: text(({ kept }) => kept.reason),
    reason_hash: bytea(({ kept }) => kept.reasonHash),
    payload: text(({ kept }) => kept.payload),
    payload_is_cut: int4(({ kept }) => (kept.isCut ? 1 : 0)),
    key_id: text(({ header }) => header.keyId),
    key_kind: text(({ header }) => header.keyKind),
    format: text(({ header }) => header.format ?? null),
    event_names: text(({ kept }) => kept.eventNames),
  },
  'ORDER BY ordinal',
);

const INSERT_COUNTS = insertInto<CountedBucket & { readonly shard: number }>(
  'counts',
  {
    tenant: int4(({ tenant }) => tenant),
    width: int4(({ width }) => width),
    start: int8(({ start }) => start),
    event_name: text(({ eventName }) => eventName),
    currency: text(({ currency }) => currency),
    events: int8(({ events }) => events),
    revenue: numeric(({ revenue }) => String(revenue)),
    shard: int4(({ shard }) => shard),
  },
  `ON CONFLICT (tenant, width, start, event_name, currency, shard)
   DO UPDATE SET events = counts.events + excluded.events, revenue = counts.revenue + excluded.revenue`,
);

const NEXT_BLOCK = { name: 'store_next_block', text: `SELECT nextval('numbers') AS first` };

/**
 * Numbers of nodes, records and events: each writer takes blocks from the sequence `numbers` and counts within them.
 * Numbers increase per writer, but not across writers.
 *
 * After a crash, the server may hand out a block again that it gave to an uncommitted transaction. So the rest of a block
 * is given up (`forget`) when a transaction is rolled back.
 */
export class StoreNumbers {
  #next = 0;
  #end = 0;

  /** For each count, the first of that many consecutive numbers. */
  async take(client: Queryable, counts: readonly number[]): Promise<number[]> {
    const firsts: number[] = [];
    for (const count of counts) {
      if (this.#next + count > this.#end) await this.#takeBlock(client, count);
      firsts.push(this.#next);
      this.#next += count;
    }
    return firsts;
  }

  forget(): void {
    this.#next = 0;
    this.#end = 0;
  }

  async #takeBlock(client: Queryable, count: number): Promise<void> {
    if (count > NUMBERS_PER_BLOCK) throw new RangeError(`a batch needs ${count} numbers in a row`);
    this.#next = rowOf(await client.query<{ first: number }>(NEXT_BLOCK)).first;
    this.#end = this.#next + NUMBERS_PER_BLOCK;
  }
}

export async function writeRecords(
  client: PostgresClient,
  tenants: readonly NumberedBatch[],
  numbers: StoreNumbers,
  processedAt: number,
): Promise<void> {
  const rows = await numbered(client, tenants, numbers, processedAt);
  const { rowCount } = await INSERT_RECORDS.query(client, rows);
  if (rowCount !== rows.length) throw new AlreadyStoredError('a record of the batch is stored already');
  await copyEvents(client, rows);
  await insertArrivals(client, rows);
  await insertRejections(client, rows);
}

/** Records and then their events, in the order of the log. */
async function numbered(
  client: Queryable,
  tenants: readonly NumberedBatch[],
  numbers: StoreNumbers,
  processedAt: number,
): Promise<RecordRow[]> {
  const records = tenants.flatMap(({ tenant, batch }) => batch.records.map((record) => ({ tenant, record })));
  const events = records.map(({ record }) => record.users.reduce((sum, user) => sum + user.events.length, 0));
  const firsts = await numbers.take(client, [...records.map(() => 1), ...events]);
  return records.map(({ tenant, record }, index) => ({
    no: firsts[index] as number,
    tenant,
    record,
    processedAt,
    firstEvent: firsts[records.length + index] as number,
    events: events[index] as number,
  }));
}

/** Those that are stored already, as records or as dead letters, and the second of two copies in the list. */
export async function findStored(
  client: Queryable,
  headers: readonly RecordHeader[],
): Promise<ReadonlySet<RecordHeader>> {
  const { rows } = await FIND_STORED.query<{ ordinal: number }>(client, headers);
  const stored = new Set(rows.map(({ ordinal }) => headers[ordinal - 1] as RecordHeader));
  const seen = new Set<string>();
  for (const header of headers) {
    const { traceId, firstUserIndex, usersRejected, receivedAt } = header;
    const name = [traceId, firstUserIndex, usersRejected, receivedAt].join(' ');
    if (seen.has(name)) stored.add(header);
    seen.add(name);
  }
  return stored;
}

async function copyEvents(client: PostgresClient, records: readonly RecordRow[]): Promise<void> {
  let lines = '';
  for (const { tenant, record, firstEvent } of records) {
    let no = firstEvent;
    const { receivedAt, traceId, keyId } = record.header;
    for (const { origin, node, events } of record.users) {
      const { userIndex } = origin;
      for (const { eventIndex, name, timestamp, revenue, currency, value, properties } of events) {
        lines += copyLine([
          no++,
          tenant,
          node,
          receivedAt,
          timestamp,
          traceId,
          keyId,
          userIndex,
          eventIndex,
          name,
          amountText(revenue),
          currency,
          amountText(value),
          properties,
        ]);
      }
    }
    if (lines.length < COPY_LENGTH_MAX) continue;
    await client.copyIn(COPY_EVENTS, Buffer.from(lines));
    lines = '';
  }
  if (lines !== '') await client.copyIn(COPY_EVENTS, Buffer.from(lines));
}

/** A range is within one day, so that it expires as a whole. */
async function insertArrivals(client: Queryable, rows: readonly RecordRow[]): Promise<void> {
  const ranges: ArrivalRange[] = [];
  for (const { tenant, record, firstEvent, events } of rows) {
    if (events === 0) continue;
    const { receivedAt } = record.header;
    const last = ranges.at(-1);
    const isNext = last?.tenant === tenant && last.firstEvent + last.events === firstEvent;
    if (last === undefined || !isNext || dayOf(last.receivedAtMin) !== dayOf(receivedAt)) {
      ranges.push({ tenant, firstEvent, events, receivedAtMin: receivedAt, receivedAtMax: receivedAt });
      continue;
    }
    last.events += events;
    last.receivedAtMin = Math.min(last.receivedAtMin, receivedAt);
    last.receivedAtMax = Math.max(last.receivedAtMax, receivedAt);
  }
  await INSERT_ARRIVALS.query(client, ranges);
}

/** Those of a repeated request were stored the first time; its trace names them all the same. */
async function insertRejections(client: Queryable, records: readonly RecordRow[]): Promise<void> {
  const rows: RejectionRow[] = [];
  for (const { tenant, record } of records) {
    if (record.duplicateOf !== null) continue;
    for (const kept of keptRejections(record.rejections)) rows.push({ tenant, header: record.header, kept });
  }
  await INSERT_REJECTIONS.query(client, rows);
}

/** A column's value; `null` is NULL. None may hold U+0000. */
type CopyValue = string | number | null;

const SPECIAL = /[\\\t\n\r]/;
const ALL_SPECIAL = /[\\\t\n\r]/g;
const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' };

/** One row for COPY … FROM STDIN, in PostgreSQL's text format. */
function copyLine(values: readonly CopyValue[]): string {
  let line = '';
  for (let column = 0; column < values.length; column++) {
    if (column > 0) line += '\t';
    const value = values[column] as CopyValue;
    if (value === null) line += '\\N';
    else if (typeof value === 'string' && SPECIAL.test(value)) {
      line += value.replace(ALL_SPECIAL, (character) => ESCAPES[character] ?? character);
    } else line += value;
  }
  return `${line}\n`;
}

/**
 * Writes the events of a transaction by minute and hour, in one statement, since an import may count thousands of
 * minutes. Each writer has rows of its own among a few (`shard`). Call it as late as possible: its locks last until the
 * transaction ends.
 */
export async function writeCounts(client: Queryable, shard: number, buckets: readonly CountedBucket[]): Promise<void> {
  await INSERT_COUNTS.query(client, buckets.map((bucket) => ({ ...bucket, shard })).sort(compareBuckets));
}
