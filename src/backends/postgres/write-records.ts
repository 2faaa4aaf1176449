/**
 * Writes records with their events and rejected users, one statement a table per batch (for events COPY, the fastest
 * way). Events of a record have consecutive numbers; each tenant's range of numbers is recorded in `arrivals`, by which
 * readers follow new events. Numbers keep the digits that were sent: revenue and value are stored as JSON.
 *
 * A record that is stored already is recognised by its trace and first user, for as long as it is stored. Nothing is looked
 * up for that: the insert finds it, and the transaction is tried again without the copy (`findStored`).
 */

import { type RecordHeader, type RecordToStore, StoredAlreadyError, type TenantBatch } from '../../store-writer.ts';
import { amountText } from '../../views/currency.ts';
import { type KeptRejection, keptRejections } from '../../views/kept-rejections.ts';
import { notesOf } from '../../views/trace.ts';
import { byteas, int4s, int8s, texts, uuids } from './binary-arrays.ts';
import type { PostgresClient, Queryable } from './pool.ts';
import { SHIFT } from './arrival-numbers.ts';
import { dayOf } from './store-days.ts';
import type { StoreNumbers } from './store-numbers.ts';

const INSERT_RECORDS = {
  name: 'store_insert_records',
  text: `
    INSERT INTO records (no, tenant, trace_id, received_at, processed_at, first_user_index, users_accepted,
      users_rejected, first_event, events, duplicate_of, key_id, notes)
    SELECT * FROM unnest($1::int8[], $2::int4[], $3::uuid[], $4::int8[], $5::int8[], $6::int4[], $7::int4[], $8::int4[],
      $9::int8[], $10::int4[], $11::uuid[], $12::text[], $13::text[])
    ON CONFLICT DO NOTHING`,
};

const FIND_STORED = {
  name: 'store_find_stored_records',
  text: `
    SELECT wanted.ordinal::integer AS ordinal
    FROM unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[])
      WITH ORDINALITY AS wanted (trace_id, first_user_index, users_rejected, received_at, ordinal)
    CROSS JOIN LATERAL (
      (SELECT 1 FROM records WHERE records.trace_id = wanted.trace_id AND records.received_at = wanted.received_at
         AND records.first_user_index = wanted.first_user_index AND records.users_rejected = wanted.users_rejected
       LIMIT 1)
      UNION ALL
      (SELECT 1 FROM dead_letters WHERE dead_letters.trace_id = wanted.trace_id
         AND dead_letters.first_user_index = wanted.first_user_index LIMIT 1)
    ) AS found`,
};

const COPY_EVENTS = `
  COPY events (no, tenant, node, received_at, timestamp, trace_id, key_id, user_index, event_index, event_name, revenue,
    currency, value, properties) FROM STDIN`;
/** Limit of the events copied at a time, in characters. */
const COPY_LENGTH_MAX = 16 * 1024 * 1024;

const INSERT_ARRIVALS = {
  name: 'store_insert_arrivals',
  text: `
    INSERT INTO arrivals (tx, tenant, first_event, events, received_at_min, received_at_max)
    SELECT pg_current_xact_id()::text::bigint + ${SHIFT}, *
    FROM unnest($1::int4[], $2::int8[], $3::int4[], $4::int8[], $5::int8[])`,
};

const INSERT_REJECTIONS = {
  name: 'store_insert_rejections',
  text: `
    INSERT INTO rejections (tenant, received_at, trace_id, user_index, message, reason, reason_hash, payload,
      payload_is_cut, key_id, key_kind, format, event_names)
    SELECT tenant, received_at, trace_id, user_index, message, reason, reason_hash, payload,
      payload_is_cut, key_id, key_kind, format, event_names
    FROM unnest($1::int4[], $2::int8[], $3::uuid[], $4::int4[], $5::text[], $6::text[], $7::bytea[], $8::text[],
      $9::int4[], $10::text[], $11::text[], $12::text[], $13::text[])
      WITH ORDINALITY
      AS q (tenant, received_at, trace_id, user_index, message, reason, reason_hash, payload, payload_is_cut, key_id,
        key_kind, format, event_names, ordinal)
    ORDER BY ordinal`,
};

interface RecordRow {
  readonly no: number;
  readonly tenant: number;
  readonly record: RecordToStore;
  readonly firstEvent: number;
  readonly events: number;
}

/** The records of one tenant, whose number is `tenant`. */
interface TenantRecords {
  readonly tenant: number;
  readonly batch: TenantBatch;
}

export async function writeRecords(
  client: PostgresClient,
  tenants: readonly TenantRecords[],
  numbers: StoreNumbers,
  processedAt: number,
): Promise<void> {
  const rows = await numbered(client, tenants, numbers);
  if (rows.length === 0) return;
  await insertRecords(client, rows, processedAt);
  await copyEvents(client, rows);
  await insertArrivals(client, rows);
  await insertRejections(client, rows);
}

/** Records and then their events, in the order of the log. */
async function numbered(
  client: Queryable,
  tenants: readonly TenantRecords[],
  numbers: StoreNumbers,
): Promise<RecordRow[]> {
  const records = tenants.flatMap(({ tenant, batch }) => batch.records.map((record) => ({ tenant, record })));
  const events = records.map(({ record }) => record.users.reduce((sum, user) => sum + user.events.length, 0));
  const firsts = await numbers.take(client, [...records.map(() => 1), ...events]);
  return records.map(({ tenant, record }, index) => ({
    no: firsts[index] as number,
    tenant,
    record,
    firstEvent: firsts[records.length + index] as number,
    events: events[index] as number,
  }));
}

async function insertRecords(client: Queryable, rows: readonly RecordRow[], processedAt: number): Promise<void> {
  const headers = rows.map(({ record }) => record.header);
  const { rowCount } = await client.query(INSERT_RECORDS, [
    int8s(rows.map(({ no }) => no)),
    int4s(rows.map(({ tenant }) => tenant)),
    uuids(headers.map(({ traceId }) => traceId)),
    int8s(headers.map(({ receivedAt }) => receivedAt)),
    int8s(rows.map(() => processedAt)),
    int4s(headers.map(({ firstUserIndex }) => firstUserIndex)),
    int4s(headers.map(({ usersAccepted }) => usersAccepted)),
    int4s(headers.map(({ usersRejected }) => usersRejected)),
    int8s(rows.map(({ firstEvent }) => firstEvent)),
    int4s(rows.map(({ events }) => events)),
    uuids(rows.map(({ record }) => record.duplicateOf)),
    texts(headers.map(({ keyId }) => keyId)),
    texts(rows.map(({ record }) => notesOf(record))),
  ]);
  if (rowCount !== rows.length) throw new StoredAlreadyError('a record of the batch is stored already');
}

/** Those that are stored already, as records or as dead letters, and the second of two copies in the list. */
export async function findStored(
  client: Queryable,
  headers: readonly RecordHeader[],
): Promise<ReadonlySet<RecordHeader>> {
  const { rows } = await client.query<{ ordinal: number }>(FIND_STORED, [
    uuids(headers.map(({ traceId }) => traceId)),
    int4s(headers.map(({ firstUserIndex }) => firstUserIndex)),
    int4s(headers.map(({ usersRejected }) => usersRejected)),
    int8s(headers.map(({ receivedAt }) => receivedAt)),
  ]);
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

interface ArrivalRange {
  readonly tenant: number;
  readonly firstEvent: number;
  events: number;
  receivedAtMin: number;
  receivedAtMax: number;
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
  if (ranges.length === 0) return;
  await client.query(INSERT_ARRIVALS, [
    int4s(ranges.map(({ tenant }) => tenant)),
    int8s(ranges.map(({ firstEvent }) => firstEvent)),
    int4s(ranges.map(({ events }) => events)),
    int8s(ranges.map(({ receivedAtMin }) => receivedAtMin)),
    int8s(ranges.map(({ receivedAtMax }) => receivedAtMax)),
  ]);
}

interface RejectionRow {
  readonly tenant: number;
  readonly header: RecordHeader;
  readonly kept: KeptRejection;
}

/** Those of a repeated request were stored the first time; its trace names them all the same. */
async function insertRejections(client: Queryable, records: readonly RecordRow[]): Promise<void> {
  const rows: RejectionRow[] = [];
  for (const { tenant, record } of records) {
    if (record.duplicateOf !== null) continue;
    for (const kept of keptRejections(record.rejections)) rows.push({ tenant, header: record.header, kept });
  }
  if (rows.length === 0) return;
  await client.query(INSERT_REJECTIONS, [
    int4s(rows.map(({ tenant }) => tenant)),
    int8s(rows.map(({ header }) => header.receivedAt)),
    uuids(rows.map(({ header }) => header.traceId)),
    int4s(rows.map(({ kept }) => kept.userIndex)),
    texts(rows.map(({ kept }) => kept.message)),
    texts(rows.map(({ kept }) => kept.reason)),
    byteas(rows.map(({ kept }) => kept.reasonHash)),
    texts(rows.map(({ kept }) => kept.payload)),
    int4s(rows.map(({ kept }) => (kept.isCut ? 1 : 0))),
    texts(rows.map(({ header }) => header.keyId)),
    texts(rows.map(({ header }) => header.keyKind)),
    texts(rows.map(({ header }) => header.format ?? null)),
    texts(rows.map(({ kept }) => kept.eventNames)),
  ]);
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
