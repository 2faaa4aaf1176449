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
 * A segment contains where it was written: in which log (`log/name-and-end.ts`), from which position on. A segment found
 * elsewhere was copied or renamed; it is never read, since its records would be processed again. Its random id, and that
 * of the segment before it, distinguish it from one of another copy of the installation (`assertOwnSegments`).
 */

import { closeSync, mkdirSync, openSync, readdirSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { sizeOfFile } from '../../../data-folder/files.ts';
import { syncPath } from '../../../data-folder/write-durably.ts';
import { ForeignSegmentError, LogCorruptError, LogUnavailableError } from '../../../log.ts';
import { openImmutable } from '../database.ts';
import { isOutOfFiles } from '../disk.ts';

export interface Segment {
  readonly file: string;
  readonly firstPosition: number;
  /**
   * `lost`: given up by an operator, its records are not read. The others are only marks: `missing`, of records that the
   * log lost; `unused`, of positions that were never given out, as far as can be known.
   */
  readonly state: 'records' | 'lost' | 'missing' | 'unused';
}

/** A segment, as other files refer to it: its first position and a random id. */
export interface SegmentId {
  readonly position: number;
  readonly id: string;
}

/** The columns of `records` before the checksum and the body. */
export const HEADER_COLUMNS =
  'position, trace_id, tenant_id, received_at, key_id, key_kind, idempotency_key, user_count, event_count, rejections, format, dropped_by_client';

/** Their values. */
export type HeaderValues = [
  position: number,
  traceId: string,
  tenantId: string,
  receivedAt: number,
  keyId: string,
  keyKind: string,
  idempotencyKey: string | null,
  userCount: number,
  eventCount: number,
  /** JSON of the rejections; null when there are none. */
  rejections: string | null,
  /** Null for our own. */
  format: string | null,
  /** Null for none. */
  droppedByClient: number | null,
];

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
const SEGMENT_NAME = /^(\d{16})\.db(?:\.(lost|missing|unused))?$/;
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
  for (const name of listNames(folder).sort()) {
    const [isSegment, digits, state = 'records'] = SEGMENT_NAME.exec(name) ?? [];
    if (isSegment === undefined) continue;
    const firstPosition = Number(digits);
    // The segment itself, a marker of missing records and one of an end sort in this order; each replaces the next.
    const isMarker = state === 'missing' || state === 'unused';
    if (isMarker && segments.at(-1)?.firstPosition === firstPosition) continue;
    segments.push({ file: join(folder, name), firstPosition, state: state as Segment['state'] });
  }
  return segments;
}

/** Those with readable records. */
export function listReadable(folder: string): Segment[] {
  return listSegments(folder).filter(holdsRecords);
}

export function segmentFile(folder: string, firstPosition: number): string {
  return join(folder, `${String(firstPosition).padStart(NAME_DIGITS, '0')}.db`);
}

/** Notes what the positions from `position` up to the next segment are. Survives a power loss. */
export function makeMark(folder: string, position: number, state: 'missing' | 'unused'): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  closeSync(openSync(`${segmentFile(folder, position)}.${state}`, 'a', 0o600));
  for (const path of [folder, dirname(folder)]) syncPath(path);
}

/** Whether a segment contains readable records. */
export function holdsRecords({ state }: Segment): boolean {
  return state === 'records';
}

/** What an operator can do about records that no segment holds, from a position on. */
export function gapAdvice(folder: string, { position, isMarked }: { position: number; isMarked: boolean }): string {
  const file = segmentFile(folder, position);
  const before = listReadable(folder).findLast(({ firstPosition }) => firstPosition < position);
  const other =
    before === undefined
      ? ', or the segment with the next lower number if it was removed or cut short,'
      : `, or ${before.file} if that one was cut short,`;
  const giveUp = isMarked ? `rename ${file}.missing to ${file}.lost` : `make an empty file ${file}.lost`;
  return (
    `With the server stopped, put ${file} back${other} with the -wal of the same name if there was one, beside the files that ` +
    `are there now${isMarked ? `, and remove ${file}.missing` : ''}. To go on without these records, ${giveUp}.`
  );
}

export interface SegmentIdentity extends SegmentId {
  readonly logName: string;
  /** The newest readable segment when this one was created. */
  readonly previous: SegmentId | undefined;
}

/** From the segment itself. Throws if it cannot be read. */
export function identityIn(database: DatabaseSync, file: string): SegmentIdentity {
  const row = database.prepare('SELECT log, first_position, id, previous_id, previous_position FROM segment').get();
  if (row === undefined) throw new LogCorruptError(`The log segment ${file} does not say which one it is.`);
  const [previousId, previousPosition] = [row['previous_id'], row['previous_position']];
  return {
    logName: String(row['log']),
    position: Number(row['first_position']),
    id: String(row['id']),
    previous: typeof previousId === 'string' ? { position: Number(previousPosition), id: previousId } : undefined,
  };
}

/** With the position of its last record, if it has any. Undefined if it cannot be read, which its readers report. */
export function findIdentity(
  file: string,
): (SegmentIdentity & { readonly lastPosition: number | undefined }) | undefined {
  try {
    using database = openSegmentForReading(file);
    return { ...identityIn(database, file), lastPosition: lastPosition(database) };
  } catch {
    return undefined;
  }
}

/** For a segment that need not be read now. Its readers report damage. */
export function assertNotForeign(segment: Segment, logName: string | undefined): ReturnType<typeof findIdentity> {
  const identity = findIdentity(segment.file);
  if (identity !== undefined) assertWrittenHere(segment, logName, identity);
  return identity;
}

/** Throws `ForeignSegmentError` if the segment was written elsewhere. Of a log without a name, only its position counts. */
export function assertWrittenHere(
  { file, firstPosition }: Segment,
  logName: string | undefined,
  { logName: writtenIn, position }: SegmentIdentity,
): void {
  const isOfAnotherLog = logName !== undefined && writtenIn !== logName;
  if (!isOfAnotherLog && position === firstPosition) return;
  const away = 'Move it away, with the -wal and -shm of the same name if there are any';
  const name = basename(segmentFile('', position));
  const what = isOfAnotherLog
    ? `it is of another log, ${writtenIn}, and this one is ${logName}. ${away}; if it is ${join(dirname(file), 'name')} that was replaced, put that back instead`
    : `it was renamed, and was called ${name}. ${away}; if there is no ${name} beside it, rename it back instead`;
  throw new ForeignSegmentError(`The log segment ${file} does not belong there: ${what}. Nothing in it is processed.`);
}

/** Throws if it already exists. */
export function createSegment(folder: string, identity: SegmentIdentity): DatabaseSync {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const { logName, position, id, previous } = identity;
  const file = segmentFile(folder, position);
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
      .run(logName, position, id, previous?.id ?? null, previous?.position ?? null);
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

/** Size on disk, including the files beside the database file. */
export function segmentBytes(file: string): number {
  return sizeOfFile(file) + sizeOfFile(`${file}-wal`);
}

/** Whether there are records in a WAL beside the database file. A sealed segment has none, or an empty one. */
export function hasWal(file: string): boolean {
  return sizeOfFile(`${file}-wal`) > 0;
}

/**
 * A sealed segment never changes again. It is opened as immutable, or SQLite would create -wal and -shm files just to
 * read it, which fails on a full disk and looks like a crash to the next start.
 */
export function openSegmentForReading(file: string): DatabaseSync {
  const limits = { length: RECORD_BYTES_MAX };
  if (!hasWal(file)) return openImmutable(file, { limits });
  return new DatabaseSync(file, { readOnly: true, timeout: BUSY_TIMEOUT_MS, limits });
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

/** The database file goes last: without it the others would never be found. */
export function removeSegment(file: string): void {
  for (const suffix of ['-shm', '-wal', '']) rmSync(file + suffix, { force: true });
}

/** CRC-32 over everything in a record: SQLite itself does not notice a flipped bit in a page. */
export function recordChecksum(header: HeaderValues, body: Uint8Array): number {
  const [position, traceId, tenantId, receivedAt, keyId, keyKind, key, users, events, rejections, format, dropped] =
    header;
  const head = `${position}\n${traceId}\n${tenantId}\n${receivedAt}\n${keyId}\n${keyKind}\n${optional(key)}\n${users}\n${events}\n${optional(rejections)}\n${format ?? ''}\n${dropped ?? ''}`;
  return crc32(body, crc32(head));
}

/** Null and an empty text differ. */
function optional(text: string | null): string {
  return text === null ? '' : `=${text}`;
}

function listNames(folder: string): string[] {
  return readIfThere(() => readdirSync(folder)) ?? [];
}

/** Undefined if there is no such file or folder. */
export function readIfThere<T>(read: () => T, what = 'The log'): T | undefined {
  try {
    return read();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    if (isOutOfFiles(error)) throw new LogUnavailableError(`${what} cannot be read now: ${(error as Error).message}.`);
    throw error;
  }
}
