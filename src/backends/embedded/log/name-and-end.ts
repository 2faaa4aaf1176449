/**
 * What is known of a log beside its segments: its name, and where it ends. From that follows whether the log has lost
 * records, and whether its segments were written here. Used by a start, by `sluice doctor` and by commands; functions
 * whose names do not say otherwise only read.
 *
 * The name of a local log is `local:` and a UUID, created on first use: a store that takes records from several logs
 * identifies positions by it. It is in a file beside the segments, again in `log-ends`, and in each segment, so that a
 * removed log, or an unreadable name, is recreated under the same name. A copy of the folder has the same name, so two
 * servers on two copies would use each other's positions: move a data folder, never copy it to run both.
 *
 * `log-ends`, a small text file beside the folder of the log, has one line:
 *
 * - the position after the last acknowledged record
 * - the position after the running commit
 * - the segment of the last acknowledged record: its first position and its id
 * - where that record ends in the segment
 * - the name of the log
 * - a checksum of the line
 *
 * A writer writes the line before each commit, with the second position, and after the commit and before the 202, both
 * without a sync of their own. Readers of a running server read up to the first position: what lies behind it in the
 * segment is not synced yet. After kill -9 the log ends between the two positions. A log that ends before the
 * first has lost acknowledged records, for whatever reason: a segment moved away or cut short,
 * yesterday's `log/`. The store may know more, too. If a log ends after the second, `log-ends` is outdated (a restored
 * copy, or the remains of an unsynced file after a power loss) and says nothing about the end.
 *
 * If `log-ends` of a used log is unreadable, or older than the segments, the loss of acknowledged requests goes
 * unnoticed, unless the store has processed later ones. The next start reports that once, and records the end that it
 * finds. The very first start writes `log-ends` before anything outside the log shows that a server has started: if a
 * server has run and the file is gone, it was lost.
 *
 * If the file is removed or replaced while a server runs, the writer recreates it; if it cannot, it acknowledges nothing
 * more, and its error names the file.
 */

import { randomUUID } from 'node:crypto';
import {
  closeSync,
  existsSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { crc32 } from 'node:zlib';
import { inaccessibleText } from '../../../data-folder/access.ts';
import { FileIdentity } from '../../../data-folder/file-identity.ts';
import { ForeignSegmentError, LogUnavailableError } from '../../../log.ts';
import type { MissingRecords } from '../../../log/continuity.ts';
import { isAccessDenied, isOutOfFiles } from '../disk.ts';
import type { KnownOfLog } from './recovery.ts';
import { type DurableEnd, findEnd, isEmpty } from './segment-reader.ts';
import {
  assertCurrentLayout,
  assertNotForeign,
  findIdentity,
  holdsRecords,
  listReadable,
  listSegments,
  LOST_POSITIONS,
  readIfThere,
  type Segment,
  type SegmentId,
} from './segments.ts';

const DIGITS = 16;
const LINE = /^((\d{16}) (\d{16}) (\d{16}) ([0-9a-f]{16}) (\d{16}) ([0-9a-f-]{36})) ([0-9a-f]{8})\n/;
/** A line that is just being written is read again. */
const ATTEMPTS_MAX = 100;
const LOCAL = 'local:';
const NAME = /^local:[0-9a-f-]{36}$/;
/** For an end without a segment that has records; no segment begins at 0. */
const NO_SEGMENT: SegmentId = { position: 0, id: '0'.repeat(DIGITS) };

/** The recorded end of a log: of acknowledged records. */
interface LogEndNote extends DurableEnd {
  /** The position after the last record that can be in the log: that of the running commit. */
  readonly next: number;
  /** The log that the end belongs to. */
  readonly logName: string;
}

/** Undefined if there is no readable name. */
export function findLogName(folder: string): string | undefined {
  const name = readName(nameFileOf(folder)) ?? readLogEndNote(folder)?.logName;
  if (name !== undefined) return name;
  for (const segment of listReadable(folder)) {
    const { logName = '' } = findIdentity(segment) ?? {};
    if (NAME.test(logName)) return logName;
  }
  return undefined;
}

/** Created if there is none. `id` is for a log that has no name yet. */
export function localLogName(folder: string, id: string = randomUUID()): string {
  const file = nameFileOf(folder);
  return readName(file) ?? writeName(file, findLogName(folder) ?? `local:${id}`);
}

function nameFileOf(folder: string): string {
  return join(folder, 'name');
}

/** Returns the name in the file: another thread or command may have been first. */
function writeName(file: string, name: string): string {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  // Written completely before it gets its name, and never over a readable one.
  const draft = `${file}.${process.pid}.${randomUUID()}`;
  writeFileSync(draft, `${name}\n`, { mode: 0o600, flush: true });
  try {
    linkSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    if (readName(file) === undefined) renameSync(draft, file);
  } finally {
    rmSync(draft, { force: true });
  }
  const written = readName(file);
  if (written === undefined) throw new Error(`${file} was made and cannot be read`);
  return written;
}

/** Also undefined for a file without a name: truncated, emptied or overwritten. */
function readName(file: string): string | undefined {
  const text = readIfThere(() => readFileSync(file, 'utf8').trim(), file);
  return text !== undefined && NAME.test(text) ? text : undefined;
}

export class LogEnds {
  readonly #file: string;
  readonly #logName: string;
  #descriptor: number;
  #identity: FileIdentity;
  #end: DurableEnd;

  /** Without a line so far, everything before `first` counts as acknowledged. */
  constructor(folder: string, first: number) {
    this.#file = endsFileOf(folder);
    const note = readLogEndNote(folder);
    this.#logName = localLogName(folder);
    this.#end = note ?? { position: first, segment: NO_SEGMENT, bytes: 0 };
    this.#descriptor = openForUpdate(this.#file);
    this.#identity = new FileIdentity(this.#file);
    if (note === undefined) this.#write(first);
  }

  /** Call it before the commit that extends the log to `next`. */
  announce(next: number): void {
    this.#write(next);
  }

  /** Call it after the commit, and before anything in it is acknowledged. */
  write(end: DurableEnd): void {
    this.#end = end;
    if (!this.remake()) this.#write(end.position);
  }

  /** Recreates the file if it was removed or replaced. Returns whether it was. */
  remake(): boolean {
    if (this.#identity.isSame()) return false;
    const before = this.#descriptor;
    this.#descriptor = inWords(this.#file, () => openForUpdate(this.#file));
    // Closed only now: the operating system soon reuses the descriptor of a closed file.
    closeSync(before);
    this.#identity = new FileIdentity(this.#file);
    this.#write(this.#end.position);
    return true;
  }

  #write(next: number): void {
    const line = lineOf({ ...this.#end, next, logName: this.#logName });
    inWords(this.#file, () => writeSync(this.#descriptor, line, 0, 'latin1'));
  }

  close(): void {
    closeSync(this.#descriptor);
  }
}

/** The position after the last one covered by segments, and by marks of missing records. */
export function endOfSegments(folder: string): number {
  const segments = listSegments(folder);
  let end = 1;
  for (const segment of segments) {
    // The number of records in it is uncertain, and positions are never used twice.
    if (segment.state === 'lost') end = segment.firstPosition + LOST_POSITIONS;
    else if (!holdsRecords(segment)) end = Math.max(end, segment.firstPosition);
    else if (segment === segments.at(-1)) end = endOfRecordsIn(segment);
  }
  return end;
}

/**
 * What a log whose segments end at `end` has lost after it; null if nothing, as far as can be known. `processed` is the
 * position up to which the store has processed the log, 0 without a store.
 */
export function missingAtEnd(
  folder: string,
  processed: number,
  end: number = endOfSegments(folder),
): MissingRecords | null {
  const acknowledged = readLogEnd(folder);
  const to = Math.max(processed, acknowledged);
  if (to <= end) return null;
  return { from: end, to, processed, doubt: doubtOf(folder, acknowledged === to) };
}

/** The segments reveal an outdated `log-ends`. Without segments, it may match the store by chance. */
function doubtOf(folder: string, isNoted: boolean): string | null {
  if (!isNoted) return 'log-ends is missing or older';
  return listSegments(folder).length > 0 ? null : 'no segment is left that log-ends can be compared with';
}

/** A removed log leaves its end beside it. */
export function hasEverExisted(folder: string): boolean {
  return existsSync(folder) || readLogEndNote(folder) !== undefined;
}

/**
 * Whether a used log has no note of its end, or one that is older than its segments. `wasUsedByServer`: files outside of the
 * log show that a server was started on it.
 */
export function isEndUnknown(folder: string, processed = 0, wasUsedByServer = false): boolean {
  const note = readLogEndNote(folder);
  const end = endOfRecords(folder);
  if (note !== undefined) return end !== undefined && end.position > note.next;
  if (end !== undefined || processed > 0 || wasUsedByServer) return true;
  return listSegments(folder).some(({ firstPosition, state }) => firstPosition > 1 || state === 'lost');
}

/** Notes the end of the segments; for a server that holds the lock, before it writes, and for a restore. */
export function noteUnknownEnd(folder: string): void {
  const newest = listSegments(folder).at(-1);
  // Readers report a segment that cannot be read.
  if (newest === undefined || !holdsRecords(newest) || findIdentity(newest) === undefined) return;
  const found = endOfRecords(folder);
  // Every start leaves a segment, which may be empty, and which the next start replaces: it is not named.
  const isNewestEmpty = found === undefined || found.position < newest.firstPosition;
  const end = isNewestEmpty ? { position: newest.firstPosition, segment: NO_SEGMENT, bytes: 0 } : found;
  const ends = new LogEnds(folder, end.position);
  ends.write(end);
  ends.close();
}

/** For a log that was never served, as far as the files beside it show: from then on its loss is noticed. */
export function beginLogEnds(folder: string): void {
  if (readLogEndNote(folder) !== undefined || isEndUnknown(folder)) return;
  new LogEnds(folder, endOfSegments(folder)).close();
}

/** The message of a start and of `sluice doctor` about an uncertain end of the log. */
export function unknownEndText(folder: string): string {
  if (listSegments(folder).length === 0) {
    return (
      'a server has run on this data folder before, and the log is gone, with log-ends: whether requests were acknowledged ' +
      'that are not processed is not known'
    );
  }
  return (
    'log-ends is missing, cannot be read or is older than the log: whether requests were acknowledged beyond the newest ' +
    'record that the log has now is not known. After a power loss an older one is normal'
  );
}

/** After the newest readable record. Compressed segments are never the newest. */
function endOfRecords(folder: string): DurableEnd | undefined {
  for (const segment of listReadable(folder).toReversed()) {
    const found = findEnd(segment);
    if (found !== undefined && found.position > segment.firstPosition) return found;
  }
  return undefined;
}

/** The position after the last record of a segment; its first one if it has none, or cannot be read. */
function endOfRecordsIn(segment: Segment): number {
  return findEnd(segment)?.position ?? segment.firstPosition;
}

/** The position after the last acknowledged record; 0 without one. */
export function readLogEnd(folder: string): number {
  return readLogEndNote(folder)?.position ?? 0;
}

/** For `log/recovery.ts`. */
export function knownOf(folder: string): KnownOfLog {
  return { logName: findLogName(folder), acknowledged: findDurableEnd(folder) };
}

/** Why it cannot be read, in words with what to do; null where it can, and where there is none. */
export function problemOfLogEnds(folder: string): string | null {
  try {
    readLogEndNote(folder);
    return null;
  } catch (error) {
    if (!isAccessDenied(error)) return null;
    return `${inaccessibleText(endsFileOf(folder), error as Error)} Until then it is not known whether the log has lost its end.`;
  }
}

/** Undefined without a readable one. */
function readLogEndNote(folder: string): LogEndNote | undefined {
  for (let attempt = 1; ; attempt += 1) {
    const text = readIfThere(() => readFileSync(endsFileOf(folder), 'latin1'));
    const note = text === undefined ? undefined : noteIn(text);
    if (note !== undefined || text === undefined || attempt === ATTEMPTS_MAX || !LINE.test(text)) return note;
  }
}

/** Up to where readers of the log may read; undefined where that is not known, or where it may not be read. */
export function findDurableEnd(folder: string): DurableEnd | undefined {
  try {
    return readLogEndNote(folder);
  } catch (error) {
    if (isAccessDenied(error)) return undefined;
    throw error;
  }
}

/** Not in the folder: it must survive when a log is removed, or replaced by an older copy. */
function endsFileOf(folder: string): string {
  return `${folder}-ends`;
}

function digitsOf(position: number): string {
  return String(position).padStart(DIGITS, '0');
}

function lineOf({ position, next, segment, bytes, logName }: LogEndNote): string {
  const id = logName.slice(LOCAL.length);
  const line = `${digitsOf(position)} ${digitsOf(next)} ${digitsOf(segment.position)} ${segment.id} ${digitsOf(bytes)} ${id}`;
  return `${line} ${checksumOf(line)}\n`;
}

function noteIn(text: string): LogEndNote | undefined {
  const [, line, position, next, segmentPosition, id, bytes, log, checksum] = LINE.exec(text) ?? [];
  if (line === undefined || id === undefined || log === undefined || checksumOf(line) !== checksum) return undefined;
  const segment = { position: Number(segmentPosition), id };
  return { position: Number(position), next: Number(next), segment, bytes: Number(bytes), logName: LOCAL + log };
}

function checksumOf(line: string): string {
  return crc32(line).toString(16).padStart(8, '0');
}

/** For a running server. What passes by itself, such as a full disk, is left to the caller. */
function inWords<T>(file: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (isOutOfFiles(error)) throw error;
    throw new LogUnavailableError(
      `${resolve(file)} cannot be written: ${(error as Error).message}. It notes up to where requests were acknowledged, ` +
        'so this server ends; nothing that it acknowledged is lost. If something else is under that name, move it elsewhere. ' +
        'Make sure that the user of the server may write the file and its folder (sluice doctor checks that), then start again.',
      true,
    );
  }
}

/** Creates it if it is missing, and never truncates it. */
function openForUpdate(file: string): number {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  closeSync(openSync(file, 'a', 0o600));
  return openSync(file, 'r+');
}

/**
 * Throws `ForeignSegmentError` for the first segment that was written elsewhere, and for such a `log-ends`;
 * `LogCorruptError` for a log of another format. Each segment has a random id of its own and names the one before it;
 * `log-ends` names the one in which the newest request was acknowledged. So a segment of another copy of the same
 * installation (a restored backup that was started, too) is noticed, though its log and first position are right: its
 * records would replace others. An empty segment proves nothing: every start leaves one, which the next start replaces by
 * another of the same name.
 *
 * Limits: checked when a server starts and by `sluice doctor`, not while a server runs. A complete `log/` of another
 * copy is noticed only if it has a segment of the same name as the newest one here; a data folder that was replaced
 * completely is not noticed.
 */
export function assertOwnSegments(folder: string): void {
  assertCurrentLayout(folder);
  const end = readLogEndNote(folder);
  const logName = findLogName(folder);
  if (end !== undefined && end.logName !== logName) throw ofAnotherLog(folder, end.logName, logName);
  const found = listReadable(folder).flatMap((segment) => {
    const identity = assertNotForeign(segment, logName);
    return identity === undefined || isEmpty(segment) ? [] : [{ segment, identity }];
  });
  const at = (position: number | undefined) => found.find(({ segment }) => segment.firstPosition === position);
  const acknowledged = at(end?.segment.position);
  if (acknowledged !== undefined && acknowledged.identity.id !== end?.segment.id) {
    throw ofAnotherCopy(acknowledged.segment.file, `it is not the one that ${folder}-ends names`);
  }
  for (const { segment, identity } of found) {
    const before = at(identity.previous?.position);
    if (before === undefined || before.identity.id === identity.previous?.id) continue;
    throw ofAnotherCopy(before.segment.file, `${segment.file} was written after another one of that name`);
  }
}

function ofAnotherLog(folder: string, other: string, own: string | undefined): ForeignSegmentError {
  return new ForeignSegmentError(
    `${folder}-ends does not belong there: it is of the log ${other}, and ${folder} is the log ${own}. One of the two is of another ` +
      'server or another installation. Put back the one that was here. If the right log-ends is gone for good, move this one ' +
      'away: the next start notes the ends that the log has. Leave the segments as they are.',
  );
}

function ofAnotherCopy(file: string, why: string): ForeignSegmentError {
  return new ForeignSegmentError(
    `The log segment ${file} does not belong there: ${why}. One of these files is of another copy of this installation, such as ` +
      'a restored backup that was started, too. Put back the files that were written here. If they are gone for good, rename ' +
      `${file} to ${file}.lost: the records that were acknowledged here in its place are given up.`,
  );
}
