/**
 * The files of the embedded log: `<folder>/<first position>.db`, one SQLite database a segment, in WAL mode with
 * `synchronous=FULL`. A segment is written by one thread of one process and never again after a restart: a new
 * process always starts a new segment. So records that follow a failed fsync are never chained after frames that the
 * disk may not have. The thread that commits never checkpoints, which would stall it; another one does, little by
 * little (`checkpointer.ts`).
 *
 * Positions have no gaps: a segment contains every position from its own first to the next segment's first, so a reader
 * notices missing records. An operator who gives up a damaged segment renames it to `….db.lost`, which keeps its
 * positions without its records. If a start finds that the log has lost its end, or that there is a gap between two
 * segments, it leaves an empty `….db.missing`: the records from that position up to the next segment were acknowledged
 * and are not here.
 *
 * A start after the newest segment was given up continues far after it, since the number of records in it is uncertain.
 * An empty `….db.unused` marks where the known ones end: from there up to the next segment there were none.
 *
 * A segment contains where it was written: in which log (`log/name.ts`), from which position on. A segment found
 * elsewhere was copied or renamed; it is never read, since its records would be processed again. Its random id, and that
 * of the segment before it, distinguish it from one of another copy of the installation (`log/segment-chain.ts`).
 */

import { randomBytes } from 'node:crypto';
import { closeSync, mkdirSync, openSync, readdirSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { crc32 } from 'node:zlib';
import { syncPath } from '../../../data-folder/write-durably.ts';
import { ForeignSegmentError, LogCorruptError, LogUnavailableError } from '../../../log.ts';
import { isOutOfFiles } from '../disk.ts';
import type { SegmentId } from './ends.ts';
import { findLogName, localLogName } from './name.ts';

export interface Segment {
  readonly file: string;
  readonly firstPosition: number;
  /** Given up by an operator: its records are not read. */
  readonly lost: boolean;
  /** Not a file of records but the mark where the log lost some. */
  readonly missing: boolean;
  /** Not a file of records but the mark of positions that were never given out, as far as can be known. */
  readonly unused: boolean;
}

/** A row of `records` as stored in SQLite, without the body. */
export interface HeaderRow {
  readonly position: number;
  readonly trace_id: string;
  readonly tenant_id: string;
  readonly received_at: number;
  readonly key_id: string;
  readonly key_kind: string;
  readonly idempotency_key: string | null;
  readonly user_count: number;
  readonly event_count: number;
  /** JSON of the rejections; null when there are none. */
  readonly rejections: string | null;
  /** Null for our own. */
  readonly format: string | null;
  /** Null for none. */
  readonly dropped_by_client: number | null;
  readonly checksum: number;
}

/** `body` comes last: SQLite finds the columns before it without reading the overflow pages of a long body. */
const SCHEMA = `
  CREATE TABLE records (
    position        INTEGER PRIMARY KEY,
    trace_id        TEXT    NOT NULL,
    tenant_id       TEXT    NOT NULL,
    received_at     INTEGER NOT NULL,
    key_id          TEXT    NOT NULL,
    key_kind        TEXT    NOT NULL,
    idempotency_key TEXT,
    user_count      INTEGER NOT NULL,
    event_count     INTEGER NOT NULL,
    rejections      TEXT,
    format          TEXT,
    dropped_by_client INTEGER,
    checksum        INTEGER NOT NULL,
    body            BLOB    NOT NULL
  ) STRICT;
  CREATE TABLE segment (
    log             TEXT    NOT NULL,
    first_position  INTEGER NOT NULL,
    id              TEXT    NOT NULL,
    previous_id     TEXT,
    previous_position INTEGER
  ) STRICT`;

/**
 * A compromise between small requests, for which a commit writes whole pages, and large bodies, for which large pages
 * are better.
 */
export const PAGE_BYTES = 8_192;
const NAME_DIGITS = 16;
const SEGMENT_ID_BYTES = 8;
const SEGMENT_NAME = /^(\d{16})\.db(\.lost|\.missing|\.unused)?$/;
const LOST = '.lost';
const MISSING = '.missing';
const UNUSED = '.unused';
const BUSY_TIMEOUT_MS = 5_000;
/**
 * Twice the largest possible record: a body of 10 MB, and a message for each of its users. A damaged page may claim
 * that a body has 2 GB and lead SQLite into a loop to read them; this stops it.
 */
const RECORD_BYTES_MAX = 64 * 1024 * 1024;
/** More records than a segment can contain: the distance between a segment that was given up and the next one. */
export const LOST_POSITIONS = 1_000_000_000;

/** In order of position. */
export function listSegments(folder: string): Segment[] {
  const segments: Segment[] = [];
  for (const name of listNames(folder)) {
    const [isSegment, digits, state] = SEGMENT_NAME.exec(name) ?? [];
    if (isSegment === undefined) continue;
    const firstPosition = Number(digits);
    segments.push({
      file: join(folder, name),
      firstPosition,
      lost: state === LOST,
      missing: state === MISSING,
      unused: state === UNUSED,
    });
  }
  // A restored segment replaces the mark of its absence, and a continued one that of an end.
  const present = new Set(segments.filter(({ missing, unused }) => !missing && !unused).map(positionOf));
  const gaps = new Set(segments.filter(({ missing }) => missing).map(positionOf));
  return segments
    .filter(
      ({ missing, unused, firstPosition: at }) =>
        !((missing || unused) && present.has(at)) && !(unused && gaps.has(at)),
    )
    .sort((a, b) => a.firstPosition - b.firstPosition);
}

function positionOf({ firstPosition }: Segment): number {
  return firstPosition;
}

export function segmentFile(folder: string, firstPosition: number): string {
  return join(folder, `${String(firstPosition).padStart(NAME_DIGITS, '0')}.db`);
}

/** Notes that the records from `position` up to the next segment are missing. Survives a power loss. */
export function markMissing(folder: string, position: number): void {
  makeMark(folder, position, MISSING);
}

/** Notes that the positions from `position` up to the next segment were never given out. Survives a power loss. */
export function markUnused(folder: string, position: number): void {
  makeMark(folder, position, UNUSED);
}

function makeMark(folder: string, position: number, kind: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  closeSync(openSync(segmentFile(folder, position) + kind, 'a', 0o600));
  for (const path of [folder, dirname(folder)]) syncPath(path);
}

/** Whether a segment contains readable records. */
export function holdsRecords({ lost, missing, unused }: Segment): boolean {
  return !lost && !missing && !unused;
}

/** The mark files for the records from `position` up to the next segment. */
export function marksOf(
  folder: string,
  position: number,
): { readonly segment: string; readonly missing: string; readonly lost: string } {
  const segment = segmentFile(folder, position);
  return { segment, missing: segment + MISSING, lost: segment + LOST };
}

/** What an operator can do about records that no segment holds, from a position on. */
export function gapAdvice(folder: string, { position, isMarked }: { position: number; isMarked: boolean }): string {
  const marks = marksOf(folder, position);
  const before = listSegments(folder).findLast((segment) => holdsRecords(segment) && segment.firstPosition < position);
  const other =
    before === undefined
      ? ', or the segment with the next lower number if it was removed or cut short,'
      : `, or ${before.file} if that one was cut short,`;
  const giveUp = isMarked ? `rename ${marks.missing} to ${marks.lost}` : `make an empty file ${marks.lost}`;
  return (
    `With the server stopped, put ${marks.segment} back${other} with the -wal of the same name if there was one, beside the files that ` +
    `are there now${isMarked ? `, and remove ${marks.missing}` : ''}. To go on without these records, ${giveUp}.`
  );
}

export function newSegmentId(position: number): SegmentId {
  return { position, id: randomBytes(SEGMENT_ID_BYTES).toString('hex') };
}

export interface SegmentIdentity extends SegmentId {
  readonly logName: string;
  /** The newest readable segment when this one was created. */
  readonly previous: SegmentId | undefined;
  /** It contains no record. */
  readonly isEmpty: boolean;
}

/**
 * Call it before reading the name of a log that may have lost it. If `log-ends` is unreadable too, the name is taken
 * from the segments. Does nothing for a log without segments.
 */
export function recoverLogName(folder: string): void {
  const [, id] = LOG_NAME.exec(findNameOfLog(folder) ?? '') ?? [];
  if (id !== undefined) localLogName(folder, id);
}

const LOG_NAME = /^local:([0-9a-f-]{36})$/;

/** From its files, else from its segments. Creates nothing. */
export function findNameOfLog(folder: string): string | undefined {
  const name = findLogName(folder);
  if (name !== undefined) return name;
  for (const { file } of listSegments(folder).filter(holdsRecords)) {
    const { logName } = findIdentity(file) ?? {};
    if (logName !== undefined && LOG_NAME.test(logName)) return logName;
  }
  return undefined;
}

/** From the segment itself; undefined if it cannot be read. */
export function findIdentity(file: string): SegmentIdentity | undefined {
  try {
    const database = openSegmentForReading(file);
    try {
      const row = database.prepare('SELECT log, first_position, id, previous_id, previous_position FROM segment').get();
      if (row === undefined) return undefined;
      const isEmpty = lastPosition(database) === undefined;
      const [previousId, previousPosition] = [row['previous_id'], row['previous_position']];
      return {
        logName: String(row['log']),
        position: Number(row['first_position']),
        id: String(row['id']),
        previous: typeof previousId === 'string' ? { position: Number(previousPosition), id: previousId } : undefined,
        isEmpty,
      };
    } finally {
      database.close();
    }
  } catch {
    return undefined;
  }
}

/** For a start: an interrupted start may have left an empty segment at the position of the new one. */
export function removeLeftover(folder: string, firstPosition: number): void {
  removeSegment(segmentFile(folder, firstPosition));
}

/** Throws if it already exists. */
export function createSegment(
  folder: string,
  { position: firstPosition, id }: SegmentId,
  previous: SegmentId | undefined,
): DatabaseSync {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const file = segmentFile(folder, firstPosition);
  const logName = localLogName(folder);
  // Never over another: should a second server write here, its records may be in there.
  closeSync(openSync(file, 'wx', 0o600));
  const database = new DatabaseSync(file, { timeout: BUSY_TIMEOUT_MS });
  try {
    database.exec(`
      PRAGMA page_size = ${PAGE_BYTES};
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = FULL;
      PRAGMA wal_autocheckpoint = 0;
      BEGIN;
      ${SCHEMA};`);
    database
      .prepare('INSERT INTO segment VALUES (?, ?, ?, ?, ?)')
      .run(logName, firstPosition, id, previous?.id ?? null, previous?.position ?? null);
    database.exec('COMMIT');
    // SQLite syncs the content of files; their folders have to be synced so that they are found after a power loss.
    for (const path of [folder, dirname(folder)]) syncPath(path);
  } catch (error) {
    // Half a segment would take up scarce space or open files. After any other error the files are left as they are.
    if (isOutOfFiles(error)) {
      database.close();
      removeSegment(file);
    }
    throw error;
  }
  return database;
}

export function insertStatement(database: DatabaseSync): StatementSync {
  return database.prepare('INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
}

export function insertRecord(insert: StatementSync, row: Omit<HeaderRow, 'checksum'>, body: Uint8Array): void {
  insert.run(
    row.position,
    row.trace_id,
    row.tenant_id,
    row.received_at,
    row.key_id,
    row.key_kind,
    row.idempotency_key,
    row.user_count,
    row.event_count,
    row.rejections,
    row.format,
    row.dropped_by_client,
    recordChecksum(row, body),
    body,
  );
}

/** Size on disk, including the files beside the database file. */
export function segmentBytes(file: string): number {
  let bytes = 0;
  for (const suffix of ['', '-wal']) bytes += statSync(file + suffix, { throwIfNoEntry: false })?.size ?? 0;
  return bytes;
}

/** Whether there are records in a WAL beside the database file. A sealed segment has none, or an empty one. */
export function hasWal(file: string): boolean {
  return (statSync(`${file}-wal`, { throwIfNoEntry: false })?.size ?? 0) > 0;
}

export function openSegmentForReading(file: string): DatabaseSync {
  const limits = { length: RECORD_BYTES_MAX };
  if (hasWal(file)) return new DatabaseSync(file, { readOnly: true, timeout: BUSY_TIMEOUT_MS, limits });
  // A sealed segment never changes again. Opened as immutable, or SQLite would create -wal and -shm files just to read
  // it, which fails on a full disk and looks like a crash to the next start.
  const url = pathToFileURL(file);
  url.searchParams.set('immutable', '1');
  return new DatabaseSync(url, { readOnly: true, limits });
}

/** Where a segment was found. */
export interface SegmentLocation {
  readonly file: string;
  /** Undefined if the log has no name: only its position is compared then. */
  readonly logName: string | undefined;
  readonly firstPosition: number;
}

/** Throws `ForeignSegmentError` if the segment was written elsewhere. */
export function assertWrittenHere(database: DatabaseSync, location: SegmentLocation): void {
  const row = database.prepare('SELECT log, first_position, previous_id FROM segment').get();
  if (row === undefined) throw new LogCorruptError(`The log segment ${location.file} does not say which one it is.`);
  const what = differenceOf(location, {
    logName: String(row['log']),
    firstPosition: Number(row['first_position']),
  });
  if (what === undefined) return;
  throw new ForeignSegmentError(
    `The log segment ${location.file} does not belong there: ${what}. Nothing in it is processed.`,
  );
}

function differenceOf(
  { file, ...location }: SegmentLocation,
  wasIn: Omit<SegmentLocation, 'file'>,
): string | undefined {
  const away = 'Move it away, with the -wal and -shm of the same name if there are any';
  if (location.logName !== undefined && wasIn.logName !== location.logName) {
    const nameFile = join(dirname(file), 'name');
    return `it is of another log, ${wasIn.logName}, and this one is ${location.logName}. ${away}; if it is ${nameFile} that was replaced, put that back instead`;
  }
  if (wasIn.firstPosition !== location.firstPosition) {
    const name = basename(segmentFile('', wasIn.firstPosition));
    return `it was renamed, and was called ${name}. ${away}; if there is no ${name} beside it, rename it back instead`;
  }
  return undefined;
}

/** For a segment that need not be read now. Its readers report damage. */
export function assertNotForeign(folder: string, { file, firstPosition }: Segment): void {
  try {
    const database = openSegmentForReading(file);
    try {
      assertWrittenHere(database, { file, logName: findLogName(folder), firstPosition });
    } finally {
      database.close();
    }
  } catch (error) {
    if (error instanceof ForeignSegmentError) throw error;
  }
}

/** Before the first release segments had other columns. */
export function assertCurrentFormat(database: DatabaseSync, file: string): void {
  const columnsOf = (table: string): unknown[] =>
    database
      .prepare(`SELECT name FROM pragma_table_info('${table}')`)
      .all()
      .map(({ name }) => name);
  const [records, segment] = [columnsOf('records'), columnsOf('segment')];
  const isCurrent = segment.includes('previous_id') && !segment.includes('partition');
  if (records.length === 0 || (isCurrent && records.includes('event_count'))) return;
  throw new LogCorruptError(`The log segment ${file} ${OLD_FORMAT}`);
}

const OLD_FORMAT = 'was written by an older, unreleased version of Sluice; use a new data folder.';

/** Before the first release each partition was a folder of segments. */
export function assertCurrentLayout(folder: string): void {
  const old = listNames(folder).find((name) => /^\d+$/.test(name));
  if (old !== undefined) throw new LogCorruptError(`The log in ${join(folder, old)} ${OLD_FORMAT}`);
}

/** Undefined if the segment is empty. */
export function lastPosition(database: DatabaseSync): number | undefined {
  const row = database.prepare('SELECT max(position) AS last FROM records').get() as { last: number | null };
  return row.last ?? undefined;
}

/** As `lastPosition`; also undefined if the segment cannot be read, which its readers report. */
export function findLastPosition(file: string): number | undefined {
  try {
    const database = openSegmentForReading(file);
    try {
      return lastPosition(database);
    } finally {
      database.close();
    }
  } catch {
    return undefined;
  }
}

/** The database file goes last: without it the others would never be found. */
export function removeSegment(file: string): void {
  for (const suffix of ['-shm', '-wal', '']) rmSync(file + suffix, { force: true });
}

/** CRC-32 over everything in a record: SQLite itself does not notice a flipped bit in a page. */
export function recordChecksum(row: Omit<HeaderRow, 'checksum'>, body: Uint8Array): number {
  const head = `${row.position}\n${row.trace_id}\n${row.tenant_id}\n${row.received_at}\n${row.key_id}\n${row.key_kind}\n${optional(row.idempotency_key)}\n${row.user_count}\n${row.event_count}\n${optional(row.rejections)}\n${row.format ?? ''}\n${row.dropped_by_client ?? ''}`;
  return crc32(body, crc32(head));
}

/** Null and an empty text differ. */
function optional(text: string | null): string {
  return text === null ? '' : `=${text}`;
}

function listNames(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    if (isOutOfFiles(error)) throw new LogUnavailableError(`The log cannot be read now: ${(error as Error).message}.`);
    throw error;
  }
}
