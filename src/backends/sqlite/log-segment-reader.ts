/**
 * Reads one segment of the embedded log: records with their bodies, headers without them, the records of one request.
 * Notices positions that are missing, and in bodies and all that is said about them any byte that is not what was
 * written. Headers alone cannot be checked: the checksum of a record covers its body.
 *
 * Each call opens the segment and closes it again. That takes a hundredth of the time that 2 MB of records take, and a
 * connection that stayed open beside the writer's would leave an empty WAL behind when the segment is sealed.
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

/** All columns but the body. */
const HEADER_COLUMNS =
  'position, trace_id, tenant_id, received_at, key_id, key_kind, idempotency_key, user_count, event_count, rejections, checksum';

/**
 * Bodies are fetched as one run of bytes and cut here: made one by one, their buffers take most of the time of a read
 * when they are small. The records of a batch share that memory. Should SQLite ever join them in another order, the
 * checksums would not fit.
 */
const JOINED_BODIES = `SELECT CAST(group_concat(body, '') AS BLOB) AS bodies
  FROM (SELECT body FROM records WHERE position BETWEEN ? AND ? ORDER BY position)`;

/** At least one record if there is one, then as many as bring the bodies to `bytesMax` bytes. */
export function readRecords(stretch: Stretch, bytesMax: number): LogRecord[] {
  return inSegment(stretch, [], (database) => {
    const rows: (HeaderRow & { readonly bytes: number })[] = [];
    let bytes = 0;
    const select = database.prepare(
      `SELECT ${HEADER_COLUMNS}, length(body) AS bytes FROM records WHERE position >= ? ORDER BY position`,
    );
    eachInTurn(stretch, select.iterate(stretch.from), (row) => {
      const sized = row as HeaderRow & { readonly bytes: number };
      rows.push(sized);
      bytes += sized.bytes;
      return bytes < bytesMax;
    });
    const last = rows.at(-1);
    if (!last) return [];
    const joined = database.prepare(JOINED_BODIES).get(stretch.from, last.position)?.bodies;
    const bodies = joined instanceof Uint8Array ? joined : new Uint8Array();
    let offset = 0;
    return rows.map((row) => {
      const body = bodies.subarray(offset, offset + row.bytes);
      offset += row.bytes;
      if (recordChecksum(row, body) !== row.checksum) throw damaged(stretch, row.position);
      return Object.assign(toHeader(row, stretch), { body });
    });
  });
}

export function readHeaders(stretch: Stretch, countMax: number): LogHeader[] {
  return inSegment(stretch, [], (database) => {
    const headers: LogHeader[] = [];
    const select = database.prepare(`SELECT ${HEADER_COLUMNS} FROM records WHERE position >= ? ORDER BY position`);
    eachInTurn(stretch, select.iterate(stretch.from), (row) => {
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

/** Gives rows on until `take` says that it has enough, and throws when one is missing before that. */
function eachInTurn(
  { segment, from, until }: Stretch,
  rows: Iterable<unknown>,
  take: (row: HeaderRow) => boolean,
): void {
  let expected = from;
  for (const row of rows as Iterable<HeaderRow>) {
    if (row.position !== expected) throw missing(segment.file, expected, row.position);
    expected += 1;
    if (!take(row)) return;
  }
  if (until !== undefined && expected !== until) throw missing(segment.file, expected, until);
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
    rejections: row.rejections === null ? [] : parseRejections(row.rejections, row.position, stretch),
  };
}

/** What JSON.parse says about damaged text quotes it, and it may quote a client. */
function parseRejections(text: string, position: number, stretch: Stretch): Rejection[] {
  try {
    return JSON.parse(text) as Rejection[];
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
