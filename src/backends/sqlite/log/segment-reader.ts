/**
 * Reads one segment of the embedded log: records with their bodies, headers without them, the records of one request.
 * Notices missing positions, and any changed byte in bodies and their headers. Headers alone cannot be checked: the
 * checksum of a record covers its body.
 *
 * Each call opens the segment and closes it again: 0.3 ms, where 2 MB of small records take 30 ms. A connection that
 * stayed open beside the writer's would leave an empty WAL and its index behind when the segment is sealed.
 */

import { accessSync, constants, existsSync, statSync } from 'node:fs';
import type { DatabaseSync } from 'node:sqlite';
import { LOCAL_PARTITION, LogCorruptError, type LogHeader, type LogRecord, LogUnavailableError } from '../../../log.ts';
import type { ForeignFormat, KeyKind, Rejection } from '../../../model.ts';
import { isAccessDenied, isOutOfFiles } from '../disk.ts';
import {
  assertCurrentFormat,
  assertWrittenHere,
  type HeaderRow,
  hasWal,
  lastPosition,
  openSegmentForReading,
  PAGE_BYTES,
  recordChecksum,
  type Segment,
} from './segments.ts';

/** The segment was removed, or given up, since the folder was listed. */
export class SegmentGoneError extends LogUnavailableError {}

/** Nothing in the segment can be read: all of it is damaged, or this user has no permission to read it. */
export class UnreadableSegmentError extends LogCorruptError {}

/** Positions that a segment should contain and does not: from `from` up to, and without, `to`. */
export class MissingPositionsError extends LogCorruptError {
  readonly from: number;
  readonly to: number;
  constructor(file: string, from: number, to: number) {
    super(
      `The log segment ${file} is damaged: it has no position ${from}, where ${to} is next. ${restoreOrGiveUp(file)}`,
    );
    this.from = from;
    this.to = to;
  }
}

/** All columns but the body. */
const HEADER_COLUMNS =
  'position, trace_id, tenant_id, received_at, key_id, key_kind, idempotency_key, user_count, event_count, rejections, format, dropped_by_client, checksum';

/** Their values, and the body. */
type RecordValues = [
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
  string | null,
  number | null,
  number,
  Uint8Array,
];

const NO_BODY = new Uint8Array(0);

/** Of bodies and rejections that are in memory at once, plus the one record that exceeds it. */
export const BATCH_BYTES_MAX = 16 * 1024 * 1024;
/** More than a record takes besides its body and its rejections. */
const HEADER_BYTES = 256;

/** The part of a segment to read. */
export interface Stretch {
  readonly segment: Segment;
  /** The name of its log (`log/name.ts`). */
  readonly logName: string | undefined;
  readonly from: number;
  /**
   * Where the next segment begins; undefined for the newest segment, which may still grow. A record from there on was
   * written by a server that had lost its lock, and was never acknowledged (`data-folder/held-lock.ts`).
   */
  readonly until: number | undefined;
}

export interface ReadRecords {
  readonly records: LogRecord[];
  /** Whether the segment has no more records after these. */
  readonly isEnd: boolean;
}

/**
 * At least one record if there is one, then as many as bring the bodies to `bytesMax` bytes. Records before a damaged or
 * missing one are returned, so that only a read of that one itself fails.
 */
export function readRecords(stretch: Stretch, bytesMax: number): ReadRecords {
  return inSegment(stretch, { records: [], isEnd: true }, (database) => {
    const { segment, from, until } = stretch;
    const select = database.prepare(
      `SELECT ${HEADER_COLUMNS}, body FROM records WHERE position >= ? AND position < ? ORDER BY position`,
    );
    const records: LogRecord[] = [];
    let position = from;
    let bytes = 0;
    let bytesInAll = 0;
    // Cheaper than objects, of which each would have a table of its own.
    select.setReturnArrays(true);
    for (const values of select.iterate(from, until ?? Number.MAX_SAFE_INTEGER)) {
      const [row, body] = toRow(values as unknown as RecordValues);
      const isThere = row.position === position;
      if (!isThere || recordChecksum(row, body) !== row.checksum) {
        if (records.length > 0) return { records, isEnd: false };
        throw isThere ? damaged(stretch, position) : new MissingPositionsError(segment.file, position, row.position);
      }
      records.push(toRecord(row, stretch, body));
      position += 1;
      bytes += body.byteLength;
      bytesInAll += body.byteLength + (row.rejections?.length ?? 0) + HEADER_BYTES;
      if (bytes >= bytesMax || bytesInAll >= BATCH_BYTES_MAX) return { records, isEnd: position === until };
    }
    if (until === undefined || position === until) return { records, isEnd: true };
    if (records.length > 0) return { records, isEnd: false };
    throw new MissingPositionsError(segment.file, position, until);
  });
}

/** Of existing records. */
export function readHeaders(stretch: Stretch, countMax: number): LogHeader[] {
  return inSegment(stretch, [], (database) => {
    const until = stretch.until ?? Number.MAX_SAFE_INTEGER;
    const rows = database
      .prepare(
        `SELECT ${HEADER_COLUMNS} FROM records WHERE position >= ? AND position < ? ORDER BY position LIMIT ${countMax}`,
      )
      .all(stretch.from, until);
    return rows.map((row) => toHeader(row as unknown as HeaderRow, stretch));
  });
}

export function findHeaders(stretch: Stretch, traceId: string): LogHeader[] {
  return inSegment(stretch, [], (database) => {
    const rows = database
      .prepare(
        `SELECT ${HEADER_COLUMNS} FROM records WHERE position >= ? AND position < ? AND trace_id = ? ORDER BY position`,
      )
      .all(stretch.from, stretch.until ?? Number.MAX_SAFE_INTEGER, traceId);
    return rows.map((row) => toHeader(row as unknown as HeaderRow, stretch));
  });
}

/** Of the first record of the stretch, if it exists. */
export function traceIdAt(stretch: Stretch): string | undefined {
  return inSegment(stretch, undefined, (database) => {
    const row = database.prepare('SELECT trace_id FROM records WHERE position = ?').get(stretch.from);
    return row === undefined ? undefined : String(row['trace_id']);
  });
}

/** The newest record below a position, if the stretch has one. */
export function headerBefore(stretch: Stretch, position: number): LogHeader | undefined {
  return inSegment(stretch, undefined, (database) => {
    const row = database
      .prepare(`SELECT ${HEADER_COLUMNS} FROM records WHERE position < ? ORDER BY position DESC LIMIT 1`)
      .get(Math.min(position, stretch.until ?? position));
    return row === undefined ? undefined : toHeader(row as unknown as HeaderRow, stretch);
  });
}

/** The position after the last record at present. */
export function endOfSegment(stretch: Stretch): number {
  const { firstPosition } = stretch.segment;
  return (
    stretch.until ?? inSegment(stretch, firstPosition, (database) => (lastPosition(database) ?? firstPosition - 1) + 1)
  );
}

/** How many records are missing from `stretch.from` on. Never any in the newest segment, which may grow. */
export function missingIn(stretch: Stretch): number {
  const { until, from, segment } = stretch;
  if (until === undefined || from >= until) return 0;
  const end = inSegment(stretch, from, (database) => (lastPosition(database) ?? segment.firstPosition - 1) + 1);
  return Math.max(0, until - Math.max(end, from));
}

/** Throws `LogCorruptError` if the first record of the stretch is damaged. */
export function assertFirstIsWhole(stretch: Stretch): void {
  readRecords(stretch, 1);
}

/** By order of appending; 0 if the segment is empty. */
export function newestReceivedAt(stretch: Stretch): number {
  return inSegment(stretch, 0, (database) => {
    const row = database.prepare('SELECT received_at FROM records ORDER BY position DESC LIMIT 1').get() as
      | { received_at: number }
      | undefined;
    return row?.received_at ?? 0;
  });
}

/** `whenUnfinished` is for a newest segment that the writer is just creating: it has no table yet. */
function inSegment<T>(stretch: Stretch, whenUnfinished: T, use: (database: DatabaseSync) => T): T {
  const { file } = stretch.segment;
  const hadWal = hasWal(file);
  try {
    const database = openSegmentForReading(file);
    try {
      assertWrittenHere(database, { ...stretch.segment, logName: stretch.logName });
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
    // SQLite reports missing permission and too many open files alike.
    if (mayNotBeRead(file)) {
      throw new UnreadableSegmentError(
        `The log segment ${file} cannot be read by this user: ${message}. It is not damaged; sluice doctor says what to do.`,
      );
    }
    if (isOutOfFiles(error)) throw new LogUnavailableError(`The log segment ${file} cannot be read now: ${message}.`);
    // The file of a new segment exists before its WAL, and its WAL before its table.
    const isNewest = stretch.until === undefined;
    if (isNewest && !hadWal && hasWal(file)) return inSegment(stretch, whenUnfinished, use);
    if (isNewest && statSync(file).size <= PAGE_BYTES && /no such table/.test(message)) return whenUnfinished;
    if (isAccessDenied(error)) {
      throw new LogUnavailableError(
        `The log segment ${file} may not be used by this user: ${message}. It is not damaged; sluice doctor says what to do.`,
      );
    }
    throw new UnreadableSegmentError(`The log segment ${file} cannot be read: ${message}. ${restoreOrGiveUp(file)}`);
  }
}

/**
 * Checked without opening anything: closing a file that the writer has open, too, would release SQLite's locks on it.
 */
function mayNotBeRead(file: string): boolean {
  return [file, `${file}-wal`, `${file}-shm`].some((path) => {
    try {
      accessSync(path, constants.R_OK);
      return false;
    } catch (error) {
      return isAccessDenied(error);
    }
  });
}

function toRow(values: RecordValues): readonly [HeaderRow, Uint8Array] {
  const row = {
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
    format: values[10],
    dropped_by_client: values[11],
    checksum: values[12],
  };
  return [row, values[13]];
}

function toHeader(row: HeaderRow, stretch: Stretch): LogHeader {
  const { body: _none, ...header } = toRecord(row, stretch, NO_BODY);
  return header;
}

function toRecord(row: HeaderRow, stretch: Stretch, body: Uint8Array): LogRecord {
  const record = {
    partition: LOCAL_PARTITION,
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
    body,
  };
  if (row.format === null && row.dropped_by_client === null) return record;
  return {
    ...record,
    ...(row.format !== null && { format: row.format as ForeignFormat }),
    ...(row.dropped_by_client !== null && { droppedByClient: row.dropped_by_client }),
  };
}

/** The message of JSON.parse quotes the damaged text, and that may quote a client. */
function parse(text: string, position: number, stretch: Stretch): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw damaged(stretch, position);
  }
}

function damaged({ segment }: Stretch, position: number): LogCorruptError {
  return new LogCorruptError(
    `The record at position ${position} of the log segment ${segment.file} is damaged. ${restoreOrGiveUp(segment.file)}`,
  );
}

/** What an operator can do about a partly unreadable segment. */
function restoreOrGiveUp(file: string): string {
  return (
    `With the server stopped, put ${file} back from a backup. To go on without those of its records that are not ` +
    `processed yet, rename it to ${file}.lost.`
  );
}
