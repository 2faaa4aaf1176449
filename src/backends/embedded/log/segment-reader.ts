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
  HEADER_COLUMNS,
  type HeaderValues,
  hasWal,
  identityIn,
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

const NO_BODY = new Uint8Array(0);

/** Indexes of columns in a row: those of the header, the checksum, the body. */
const POSITION = 0;
const REJECTIONS = 9;
const CHECKSUM = 12;
const BODY = 13;

/** Limit of bodies and rejections in memory at once, plus the one record that exceeds it. */
export const BATCH_BYTES_MAX = 16 * 1024 * 1024;
/** More than a record takes besides its body and its rejections. */
const HEADER_BYTES = 256;

/** The part of a segment to read. */
export interface SegmentRange {
  readonly segment: Segment;
  /** The name of its log (`log/name-and-end.ts`). */
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
export function readRecords(range: SegmentRange, bytesMax: number): ReadRecords {
  return inSegment(range, { records: [], isEnd: true }, (database) => {
    const { segment, from, until } = range;
    const select = database.prepare(
      `SELECT ${HEADER_COLUMNS}, checksum, body FROM records WHERE position >= ? AND position < ? ORDER BY position`,
    );
    const records: LogRecord[] = [];
    let position = from;
    let bytes = 0;
    let bytesInAll = 0;
    // Cheaper than objects, of which each would have a table of its own.
    select.setReturnArrays(true);
    for (const values of select.iterate(from, until ?? Number.MAX_SAFE_INTEGER)) {
      const header = values as unknown as HeaderValues;
      const { [CHECKSUM]: checksum, [BODY]: body } = values as unknown as { [CHECKSUM]: number; [BODY]: Uint8Array };
      const isThere = header[POSITION] === position;
      if (!isThere || recordChecksum(header, body) !== checksum) {
        if (records.length > 0) return { records, isEnd: false };
        throw isThere ? damaged(range, position) : new MissingPositionsError(segment.file, position, header[POSITION]);
      }
      records.push(toRecord(header, range, body));
      position += 1;
      bytes += body.byteLength;
      bytesInAll += body.byteLength + (header[REJECTIONS]?.length ?? 0) + HEADER_BYTES;
      if (bytes >= bytesMax || bytesInAll >= BATCH_BYTES_MAX) return { records, isEnd: position === until };
    }
    if (until === undefined || position === until) return { records, isEnd: true };
    if (records.length > 0) return { records, isEnd: false };
    throw new MissingPositionsError(segment.file, position, until);
  });
}

/** Headers of the records of the range. `condition`: which of them, and their order. */
export function readHeaders(range: SegmentRange, condition: string, ...values: (number | string)[]): LogHeader[] {
  const { from, until = Number.MAX_SAFE_INTEGER } = range;
  return selectHeaders(range, `position >= ? AND position < ? AND ${condition}`, from, until, ...values).map((row) => {
    const { body: _none, ...header } = toRecord(row, range, NO_BODY);
    return header;
  });
}

/** The newest record of the segment below a position; undefined if it has none. */
export function newestBefore(
  range: SegmentRange,
  below = Number.MAX_SAFE_INTEGER,
): Pick<LogHeader, 'position' | 'traceId' | 'receivedAt'> | undefined {
  const [newest] = selectHeaders(range, 'position < ? ORDER BY position DESC LIMIT 1', below);
  if (newest === undefined) return undefined;
  const [position, traceId, , receivedAt] = newest;
  return { position, traceId, receivedAt };
}

/** The position after the last record at present. */
export function endOfSegment(range: SegmentRange): number {
  return (newestBefore(range)?.position ?? range.segment.firstPosition - 1) + 1;
}

function selectHeaders(range: SegmentRange, condition: string, ...values: (number | string)[]): HeaderValues[] {
  return inSegment(range, [], (database) => {
    const select = database.prepare(`SELECT ${HEADER_COLUMNS} FROM records WHERE ${condition}`);
    select.setReturnArrays(true);
    return select.all(...values) as unknown as HeaderValues[];
  });
}

/** `whenUnfinished` is for a newest segment that the writer is just creating: it has no table yet. */
function inSegment<T>(range: SegmentRange, whenUnfinished: T, use: (database: DatabaseSync) => T): T {
  const { file } = range.segment;
  const hadWal = hasWal(file);
  try {
    using database = openSegmentForReading(file);
    try {
      assertWrittenHere(range.segment, range.logName, identityIn(database, file));
      return use(database);
    } catch (error) {
      assertCurrentFormat(database, file);
      throw error;
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
    const isNewest = range.until === undefined;
    if (isNewest && !hadWal && hasWal(file)) return inSegment(range, whenUnfinished, use);
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

function toRecord(header: HeaderValues, range: SegmentRange, body: Uint8Array): LogRecord {
  const [
    position,
    traceId,
    tenantId,
    receivedAt,
    keyId,
    keyKind,
    idempotencyKey,
    userCount,
    eventCount,
    rejections,
    format,
    droppedByClient,
  ] = header;
  const record = {
    partition: LOCAL_PARTITION,
    position,
    firstUserIndex: 0,
    traceId,
    tenantId,
    receivedAt,
    keyId,
    keyKind: keyKind as KeyKind,
    idempotencyKey,
    userCount,
    eventCount,
    rejections: rejections === null ? [] : (parse(rejections, position, range) as Rejection[]),
    body,
  };
  if (format === null && droppedByClient === null) return record;
  return {
    ...record,
    ...(format !== null && { format: format as ForeignFormat }),
    ...(droppedByClient !== null && { droppedByClient }),
  };
}

/** The message of JSON.parse quotes the damaged text, and that may quote a client. */
function parse(text: string, position: number, range: SegmentRange): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw damaged(range, position);
  }
}

function damaged({ segment }: SegmentRange, position: number): LogCorruptError {
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
