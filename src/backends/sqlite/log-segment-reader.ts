/**
 * Reads one segment of the embedded log: records with their bodies, headers without them, the records of one request.
 * Notices positions that are missing, and in bodies and all that is said about them any byte that is not what was
 * written. Headers alone cannot be checked: the checksum of a record covers its body.
 *
 * Each call opens the segment and closes it again: 0.3 ms, where 2 MB of small records take 30 ms. A connection that
 * stayed open beside the writer's would leave an empty WAL and its index behind when the segment is sealed.
 */

import { existsSync, statSync } from 'node:fs';
import type { DatabaseSync } from 'node:sqlite';
import { LogCorruptError, type LogHeader, type LogRecord, LogUnavailableError } from '../../log.ts';
import type { KeyKind, Rejection } from '../../model.ts';
import { isOutOfFiles } from './disk.ts';
import {
  assertCurrentFormat,
  type HeaderRow,
  hasWal,
  lastPosition,
  openSegmentForReading,
  PAGE_BYTES,
  recordChecksum,
  type Segment,
} from './log-segments.ts';

/** What is to be read of a segment. */
export interface Stretch {
  readonly segment: Segment;
  readonly partition: number;
  readonly from: number;
  /** Where the next segment begins; undefined for the newest segment, which may still grow. */
  readonly until: number | undefined;
}

/** The segment was removed, or given up, since the folder was listed. */
export class SegmentGoneError extends LogUnavailableError {}

/** All columns but the body, in the order of `HeaderValues`. */
const HEADER_COLUMNS =
  'position, trace_id, tenant_id, received_at, key_id, key_kind, idempotency_key, user_count, event_count, rejections, checksum';

type HeaderValues = [
  number,
  string,
  string,
  number,
  string,
  string,
  string | null,
  number,
  number,
  string | null,
  number,
];

/**
 * With the one record that may go over it, and escaped as JSON, below what SQLite may hold in one value
 * (`RECORD_BYTES_MAX`).
 */
export const BATCH_BYTES_MAX = 16 * 1024 * 1024;
/** More than a record takes besides its body and its rejections. */
const HEADER_BYTES = 256;

/**
 * All records of a run in two values, headers as JSON and bodies behind one another: with bodies of 400 bytes that takes
 * a quarter off the CPU time of a read by rows, with large ones it is about even. The bodies of a batch share memory.
 */
const RUN = `
  SELECT json_group_array(json_array(${HEADER_COLUMNS}, bytes)) AS headers, CAST(group_concat(body, '') AS BLOB) AS bodies
  FROM (SELECT ${HEADER_COLUMNS}, length(body) AS bytes, body FROM records
        WHERE position BETWEEN ? AND ? ORDER BY position)`;

export interface ReadRecords {
  readonly records: LogRecord[];
  /** Whether these are all that the segment has from there on. */
  readonly isEnd: boolean;
}

/** At least one record if there is one, then as many as bring the bodies to `bytesMax` bytes. */
export function readRecords(stretch: Stretch, bytesMax: number): ReadRecords {
  return inSegment(stretch, { records: [], isEnd: true }, (database) => {
    const sizes = database.prepare(
      `SELECT position, length(body) AS bytes, coalesce(length(rejections), 0) AS more
       FROM records WHERE position >= ? ORDER BY position`,
    );
    let last = stretch.from - 1;
    let bytes = 0;
    let bytesInAll = 0;
    const rows = sizes.iterate(stretch.from) as unknown as Iterable<SizeRow>;
    const isEnd = eachInTurn(stretch, rows, (row) => {
      last = row.position;
      bytes += row.bytes;
      bytesInAll += row.bytes + row.more + HEADER_BYTES;
      return bytes < bytesMax && bytesInAll < BATCH_BYTES_MAX;
    });
    return { records: last < stretch.from ? [] : readRun(database, stretch, last), isEnd };
  });
}

interface SizeRow {
  readonly position: number;
  readonly bytes: number;
  readonly more: number;
}

function readRun(database: DatabaseSync, stretch: Stretch, last: number): LogRecord[] {
  const run = database.prepare(RUN).get(stretch.from, last) as { headers: string; bodies: Uint8Array };
  const headers = parse(run.headers, stretch.from, stretch) as [...HeaderValues, number][];
  let offset = 0;
  let position = stretch.from;
  const records: LogRecord[] = [];
  for (const values of headers) {
    const row = toRow(values);
    const body = run.bodies.subarray(offset, offset + values[11]);
    if (row.position !== position || recordChecksum(row, body) !== row.checksum) throw damaged(stretch, position);
    records.push({ ...toHeader(row, stretch), body });
    offset += body.byteLength;
    position += 1;
  }
  if (position !== last + 1) throw damaged(stretch, position);
  return records;
}

export function readHeaders(stretch: Stretch, countMax: number): LogHeader[] {
  return inSegment(stretch, [], (database) => {
    const headers: LogHeader[] = [];
    const select = database.prepare(`SELECT ${HEADER_COLUMNS} FROM records WHERE position >= ? ORDER BY position`);
    eachInTurn(stretch, select.iterate(stretch.from) as unknown as Iterable<HeaderRow>, (row) => {
      headers.push(toHeader(row, stretch));
      return headers.length < countMax;
    });
    return headers;
  });
}

export function findHeaders(stretch: Stretch, traceId: string): LogHeader[] {
  return inSegment(stretch, [], (database) => {
    const rows = database
      .prepare(`SELECT ${HEADER_COLUMNS} FROM records WHERE position >= ? AND trace_id = ? ORDER BY position`)
      .all(stretch.from, traceId);
    return rows.map((row) => toHeader(row as unknown as HeaderRow, stretch));
  });
}

/** The position after the last record, as things are now. */
export function endOfSegment(stretch: Stretch): number {
  const { firstPosition } = stretch.segment;
  return (
    stretch.until ?? inSegment(stretch, firstPosition, (database) => (lastPosition(database) ?? firstPosition - 1) + 1)
  );
}

/** By the order of appending; 0 when the segment is empty. */
export function newestReceivedAt(stretch: Stretch): number {
  return inSegment(stretch, 0, (database) => {
    const row = database.prepare('SELECT received_at FROM records ORDER BY position DESC LIMIT 1').get() as
      | { received_at: number }
      | undefined;
    return row?.received_at ?? 0;
  });
}

/** `whenUnfinished` is for a newest segment that the writer is just making: it has no table yet. */
function inSegment<T>(stretch: Stretch, whenUnfinished: T, use: (database: DatabaseSync) => T): T {
  const { file } = stretch.segment;
  const hadWal = hasWal(file);
  try {
    const database = openSegmentForReading(file);
    try {
      return use(database);
    } catch (error) {
      assertCurrentFormat(database, file);
      throw error;
    } finally {
      database.close();
    }
  } catch (error) {
    if (error instanceof LogCorruptError) throw error;
    const { message } = error as Error;
    if (!existsSync(file)) throw new SegmentGoneError(`The log segment ${file} is no longer there.`);
    if (isOutOfFiles(error)) throw new LogUnavailableError(`The log segment ${file} cannot be read now: ${message}.`);
    // The file of a new segment is there before its WAL, and its WAL before its table.
    const isNewest = stretch.until === undefined;
    if (isNewest && !hadWal && hasWal(file)) return inSegment(stretch, whenUnfinished, use);
    if (isNewest && statSync(file).size <= PAGE_BYTES && /no such table: records/.test(message)) return whenUnfinished;
    throw new LogCorruptError(`The log segment ${file} cannot be read: ${message}.`);
  }
}

/**
 * Gives rows on until `take` says that it has enough, and throws when one is missing before that. Returns whether it
 * came to the end of the segment.
 */
function eachInTurn<Row extends { readonly position: number }>(
  { segment, from, until }: Stretch,
  rows: Iterable<Row>,
  take: (row: Row) => boolean,
): boolean {
  let expected = from;
  for (const row of rows) {
    if (row.position !== expected) throw missing(segment.file, expected, row.position);
    expected += 1;
    if (!take(row)) return expected === until;
  }
  if (until !== undefined && expected !== until) throw missing(segment.file, expected, until);
  return true;
}

function toRow(values: readonly [...HeaderValues, number]): HeaderRow {
  return {
    position: values[0],
    trace_id: values[1],
    tenant_id: values[2],
    received_at: values[3],
    key_id: values[4],
    key_kind: values[5],
    idempotency_key: values[6],
    user_count: values[7],
    event_count: values[8],
    rejections: values[9],
    checksum: values[10],
  };
}

function toHeader(row: HeaderRow, stretch: Stretch): LogHeader {
  return {
    partition: stretch.partition,
    position: row.position,
    firstUserIndex: 0,
    traceId: row.trace_id,
    tenantId: row.tenant_id,
    receivedAt: row.received_at,
    keyId: row.key_id,
    keyKind: row.key_kind as KeyKind,
    idempotencyKey: row.idempotency_key,
    userCount: row.user_count,
    eventCount: row.event_count,
    rejections: row.rejections === null ? [] : (parse(row.rejections, row.position, stretch) as Rejection[]),
  };
}

/** What JSON.parse says about damaged text quotes it, and it may quote a client. */
function parse(text: string, position: number, stretch: Stretch): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw damaged(stretch, position);
  }
}

function damaged({ segment }: Stretch, position: number): LogCorruptError {
  return new LogCorruptError(`The record at position ${position} of the log segment ${segment.file} is damaged.`);
}

function missing(file: string, from: number, to: number): LogCorruptError {
  return new LogCorruptError(`The log segment ${file} is damaged: it has no position ${from}, where ${to} is next.`);
}
