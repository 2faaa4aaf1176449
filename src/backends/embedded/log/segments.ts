/**
 * The files of the embedded log: `<folder>/<first position>.log`, a text file of frames (`log/frames.ts`), the first of
 * which says which segment it is. A segment is written by one thread of one process and never again after a restart: a
 * new process always starts a new segment. So records that follow a failed fsync are never appended after bytes that the
 * disk may not have. A segment that is processed is compressed: `….log.zst` (`log/compression.ts`).
 *
 * Positions have no gaps: a segment contains every position from its own first to the next segment's first, so a reader
 * notices missing records. An operator who gives up a damaged segment renames it to `….log.lost`, which keeps its
 * positions without its records. If a start finds that the log has lost its end, or that there is a gap between two
 * segments, it leaves an empty `….log.missing`: the records from that position up to the next segment were acknowledged
 * and are not here.
 *
 * A start after the newest segment was given up continues far after it, since the number of records in it is uncertain.
 * An empty `….log.unused` marks where the known ones end: from there up to the next segment there were none.
 *
 * A segment contains where it was written: in which log (`log/name-and-end.ts`), from which position on. A segment found
 * elsewhere was copied or renamed; it is never read, since its records would be processed again. Its random id, and that
 * of the segment before it, distinguish it from one of another copy of the installation (`assertOwnSegments`). It also
 * contains how long the segment before it is, so that one that was cut short is noticed by its size.
 */

import { closeSync, fdatasyncSync, mkdirSync, openSync, readdirSync, readSync, rmSync, writevSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { sizeOfFile } from '../../../data-folder/files.ts';
import { syncPath } from '../../../data-folder/write-durably.ts';
import { ForeignSegmentError, LogCorruptError, LogUnavailableError } from '../../../log.ts';
import { isOutOfFiles } from '../disk.ts';
import { encodeFrame, frameAt, headerIn, isIntact } from './frames.ts';

export interface Segment {
  readonly file: string;
  readonly firstPosition: number;
  /**
   * `lost`: given up by an operator, its records are not read. The others are only marks: `missing`, of records that the
   * log lost; `unused`, of positions that were never given out, as far as can be known.
   */
  readonly state: 'records' | 'lost' | 'missing' | 'unused';
  readonly isCompressed: boolean;
}

/** A segment, as other files refer to it: its first position and a random id. */
export interface SegmentId {
  readonly position: number;
  readonly id: string;
}

export interface SegmentIdentity extends SegmentId {
  readonly logName: string;
  /** The newest segment with records when this one was created, and its size, which was final. */
  readonly previous: (SegmentId & { readonly bytes: number }) | null;
  /** No record before this segment was received later. */
  readonly receivedBefore: number;
}

/** The header of a record, as it is written: a JSON array. */
export type HeaderValues = [
  position: number,
  /** The first position of the commit that it was written in: what a crash can cut short is one commit, the last. */
  commit: number,
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

const NAME_DIGITS = 16;
const SEGMENT_NAME = /^(\d{16})\.log(?:\.(zst|lost|missing|unused))?$/;
/** Of several files with one position the first of these counts. */
const SUFFIXES = [undefined, 'zst', 'lost', 'missing', 'unused'];
/** The seed of the first frame of a segment, before its own is known. */
const IDENTITY_SEED = 0;
/** More than the first frame of a segment has. */
export const IDENTITY_BYTES_MAX = 1_024;
const FORMAT = 1;
/** What the header of a record has, in this order (`HeaderValues`): for people who read a segment. */
const COLUMNS = [
  ...['position', 'commit', 'trace_id', 'tenant_id', 'received_at', 'key_id', 'key_kind', 'idempotency_key'],
  ...['user_count', 'event_count', 'rejections', 'format', 'dropped_by_client'],
];
/** More records than a segment can contain: the distance between a segment that was given up and the next one. */
export const LOST_POSITIONS = 1_000_000_000;

/** In order of position. */
export function listSegments(folder: string): Segment[] {
  const found = new Map<number, Segment & { readonly rank: number }>();
  for (const name of listNames(folder)) {
    const [isSegment, digits, suffix] = SEGMENT_NAME.exec(name) ?? [];
    if (isSegment === undefined) continue;
    const firstPosition = Number(digits);
    const rank = SUFFIXES.indexOf(suffix);
    if ((found.get(firstPosition)?.rank ?? SUFFIXES.length) < rank) continue;
    const isCompressed = suffix === 'zst';
    const state = suffix === undefined || isCompressed ? 'records' : (suffix as Segment['state']);
    found.set(firstPosition, { file: join(folder, name), firstPosition, state, isCompressed, rank });
  }
  return [...found.values()]
    .sort((one, other) => one.firstPosition - other.firstPosition)
    .map(({ rank: _rank, ...segment }) => segment);
}

/** Those with readable records. */
export function listReadable(folder: string): Segment[] {
  return listSegments(folder).filter(holdsRecords);
}

export function segmentFile(folder: string, firstPosition: number): string {
  return join(folder, `${String(firstPosition).padStart(NAME_DIGITS, '0')}.log`);
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
    `With the server stopped, put ${file} back${other} beside the files that are there now` +
    `${isMarked ? `, and remove ${file}.missing` : ''}. To go on without these records, ${giveUp}.`
  );
}

/**
 * From the first bytes of the segment. Undefined if they do not say it: a start was interrupted, or they are damaged.
 */
export function identityIn(bytes: Buffer): { readonly identity: SegmentIdentity; readonly end: number } | undefined {
  const frame = frameAt(bytes, 0, IDENTITY_SEED);
  if (frame === null || frame.end > bytes.length || !isIntact(bytes, frame, IDENTITY_SEED)) return undefined;
  const header = headerIn(bytes, frame) as {
    readonly log: string;
    readonly first_position: number;
    readonly id: string;
    readonly previous: { readonly first_position: number; readonly id: string; readonly bytes: number } | null;
    readonly received_before: number;
  };
  const { log: logName, first_position: position, id, previous, received_before: receivedBefore } = header;
  return {
    identity: {
      ...{ logName, position, id, receivedBefore },
      previous: previous && { position: previous.first_position, id: previous.id, bytes: previous.bytes },
    },
    end: frame.end,
  };
}

/** Undefined if it cannot be read, which its readers report, or is compressed. */
export function findIdentity({ file, isCompressed }: Segment): SegmentIdentity | undefined {
  if (isCompressed) return undefined;
  try {
    const descriptor = openSync(file, 'r');
    try {
      const bytes = Buffer.alloc(IDENTITY_BYTES_MAX);
      return identityIn(bytes.subarray(0, readSync(descriptor, bytes, 0, bytes.length, 0)))?.identity;
    } finally {
      closeSync(descriptor);
    }
  } catch {
    return undefined;
  }
}

/** For a segment that need not be read now. Its readers report damage. */
export function assertNotForeign(segment: Segment, logName: string | undefined): SegmentIdentity | undefined {
  const identity = findIdentity(segment);
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
  const name = basename(segmentFile('', position));
  const what = isOfAnotherLog
    ? `it is of another log, ${writtenIn}, and this one is ${logName}. Move it away; if it is ${join(dirname(file), 'name')} that was replaced, put that back instead`
    : `it was renamed, and was called ${name}. Move it away; if there is no ${name} beside it, rename it back instead`;
  throw new ForeignSegmentError(`The log segment ${file} does not belong there: ${what}. Nothing in it is processed.`);
}

/** Its descriptor, for appending, and its size so far. Throws if it already exists. */
export function createSegment(folder: string, identity: SegmentIdentity): { descriptor: number; bytes: number } {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const { logName: log, position, id, previous, receivedBefore } = identity;
  const header = {
    ...{ format: FORMAT, log, first_position: position, id },
    previous: previous && { first_position: previous.position, id: previous.id, bytes: previous.bytes },
    ...{ received_before: receivedBefore, columns: COLUMNS },
  };
  const file = segmentFile(folder, position);
  // Never over another: should a second server write here, its records may be in there.
  const descriptor = openSync(file, 'ax', 0o600);
  try {
    const bytes = writevSync(descriptor, encodeFrame(JSON.stringify(header), new Uint8Array(), IDENTITY_SEED));
    fdatasyncSync(descriptor);
    // So that the file is found after a power loss.
    for (const path of [folder, dirname(folder)]) syncPath(path);
    return { descriptor, bytes };
  } catch (error) {
    closeSync(descriptor);
    // Half a segment would take up scarce space or open files. After any other error the file is left as it is.
    if (isOutOfFiles(error)) removeSegment(file);
    throw error;
  }
}

/** Before the first release the log had other files. */
export function assertCurrentLayout(folder: string): void {
  const old = listNames(folder).find((name) => /^(\d+|\d{16}\.db)$/.test(name));
  if (old === undefined) return;
  throw new LogCorruptError(
    `The log in ${join(folder, old)} was written by an older, unreleased version of Sluice; use a new data folder.`,
  );
}

export function removeSegment(file: string): void {
  rmSync(file, { force: true });
}

export function segmentBytes({ file }: Pick<Segment, 'file'>): number {
  return sizeOfFile(file);
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
