/**
 * The files of the embedded log: `<folder>/<first position>.log`, a text file of frames (`./frames.ts`). The first frame
 * is the header of the segment, the others are its records. A segment is appended to by one thread of one process, and
 * never after a restart: a new process always starts a new segment. So records that follow a failed fsync are never
 * appended after bytes that the disk may not have. Once its records are processed, a segment is compressed: `….log.zst`
 * (`./compression.ts`).
 *
 * Positions have no gaps: a segment contains every position from its own first to the next segment's first, so a reader
 * notices missing records. An operator who gives up a damaged segment renames it to `….log.lost`, which keeps its
 * positions without its records. If a start finds that the log has lost its end, or that there is a gap between two
 * segments, it leaves an empty `….log.missing`: the records from that position up to the next segment were acknowledged
 * and are not here.
 *
 * A start after the newest segment was given up continues `LOST_POSITIONS` after it, because the number of its records is
 * unknown. An empty `….log.unused` marks where the known ones end: from there up to the next segment there were none.
 *
 * The header says where the segment was written: in which log (`./name.ts`), from which position on. A segment found
 * elsewhere was copied or renamed; it is never read, since its records would be processed again. Its random id, and that
 * of the segment before it, distinguish it from one of another copy of the installation (`./foreign-segments.ts`). The
 * header also has the size of the segment before it, so that one that was cut short is noticed by its size.
 */

import { closeSync, fdatasyncSync, mkdirSync, openSync, readdirSync, readSync, rmSync, writevSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { syncPath } from '../../../data-folder/write-durably.ts';
import { ForeignSegmentError, LogCorruptError, LogUnavailableError } from '../../../log.ts';
import { isAccessDenied, mayPassByItself } from '../disk.ts';
import { encodeFrame, frameAt, headerIn, isIntact } from './frames.ts';
import { COLUMNS } from './record-header.ts';

export interface Segment {
  readonly file: string;
  readonly firstPosition: number;
  /**
   * `lost`: given up by an operator, its records are not read. `missing` and `unused` are empty marker files: of
   * acknowledged records that are gone; of positions that were never assigned, as far as is known.
   */
  readonly state: 'records' | 'lost' | 'missing' | 'unused';
  readonly isCompressed: boolean;
}

/** A segment, as other files refer to it: its first position and a random id. */
export interface SegmentId {
  readonly firstPosition: number;
  readonly id: string;
}

export interface SegmentHeader extends SegmentId {
  readonly logName: string;
  /** The newest segment with records when this one was created, and its size, which was final. */
  readonly previous: (SegmentId & { readonly bytes: number }) | null;
  /** The newest time of receipt in all segments before it; 0 for none. */
  readonly newestReceivedAtBefore: number;
}

const NAME_DIGITS = 16;
const SEGMENT_NAME = /^(\d{16})\.log(?:\.(zst|lost|missing|unused))?$/;
/** If several files have the same position, the first suffix in this list wins. */
const SUFFIXES = [undefined, 'zst', 'lost', 'missing', 'unused'];
/** The seed of the first frame, before that of the segment is known. */
const HEADER_SEED = 0;
/** More than the first frame of a segment has. */
export const HEADER_BYTES_MAX = 1_024;
const FORMAT = 1;
/** How many pieces of memory the operating system takes in one call. */
const PIECES_MAX = 1_024;
const OTHER_VERSION = 'another version of Sluice wrote; use that version, or a new data folder.';
/** More records than a segment can contain: the distance between a segment that was given up and the next one. */
export const LOST_POSITIONS = 1_000_000_000;

/** In order of position. */
export function listSegments(folder: string): Segment[] {
  const found = new Map<number, Segment & { readonly rank: number }>();
  for (const name of listNames(folder)) {
    const [match, digits, suffix] = SEGMENT_NAME.exec(name) ?? [];
    if (match === undefined) continue;
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
export function makeMarker(folder: string, position: number, state: 'missing' | 'unused'): void {
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
    `With the server stopped, put ${file} back${other} next to the files that are there now` +
    `${isMarked ? `, and remove ${file}.missing` : ''}. To continue without these records, ${giveUp}.`
  );
}

/** What an operator can do about a segment that is damaged. */
export function restoreOrGiveUp({ file }: Pick<Segment, 'file'>): string {
  return (
    `With the server stopped, put ${file} back from a backup. To continue without those of its records that are not ` +
    `processed yet, rename ${file} to ${file.replace(/\.zst$/, '')}.lost.`
  );
}

/**
 * From the first bytes of a segment. Undefined if they have no readable header: a start was interrupted, or it is damaged.
 * Throws for a header that this version does not know.
 */
export function segmentHeaderIn(
  bytes: Buffer,
  file: string,
): { readonly header: SegmentHeader; readonly end: number } | undefined {
  const frame = frameAt(bytes, 0, HEADER_SEED);
  if (frame === null || frame.end > bytes.length || !isIntact(bytes, frame, HEADER_SEED)) return undefined;
  const values = JSON.parse(headerIn(bytes, frame)) as {
    readonly format: number;
    readonly log: string;
    readonly first_position: number;
    readonly id: string;
    readonly previous: { readonly first_position: number; readonly id: string; readonly bytes: number } | null;
    readonly newest_received_at_before: number;
  };
  if (values.format !== FORMAT) {
    throw new LogCorruptError(`The log segment ${file} has the format ${values.format}, which ${OTHER_VERSION}`);
  }
  const { previous } = values;
  return {
    header: {
      logName: values.log,
      firstPosition: values.first_position,
      id: values.id,
      previous: previous && { firstPosition: previous.first_position, id: previous.id, bytes: previous.bytes },
      newestReceivedAtBefore: values.newest_received_at_before,
    },
    end: frame.end,
  };
}

/** Undefined if it cannot be read, which its readers report, or is compressed. */
export function findSegmentHeader({ file, isCompressed }: Segment): SegmentHeader | undefined {
  if (isCompressed) return undefined;
  try {
    const descriptor = openSync(file, 'r');
    try {
      const bytes = Buffer.alloc(HEADER_BYTES_MAX);
      return segmentHeaderIn(bytes.subarray(0, readSync(descriptor, bytes, 0, bytes.length, 0)), file)?.header;
    } finally {
      closeSync(descriptor);
    }
  } catch {
    return undefined;
  }
}

/** Throws `ForeignSegmentError` if the segment was written elsewhere. Of a log without a name, only its position counts. */
export function assertWrittenHere(
  { file, firstPosition, isCompressed }: Segment,
  logName: string | undefined,
  header: SegmentHeader,
): void {
  const isOfAnotherLog = logName !== undefined && header.logName !== logName;
  if (!isOfAnotherLog && header.firstPosition === firstPosition) return;
  const name = basename(segmentFile('', header.firstPosition)) + (isCompressed ? '.zst' : '');
  const what = isOfAnotherLog
    ? `it is of another log, ${header.logName}, and this one is ${logName}. Move it away; if ${join(dirname(file), 'name')} was replaced, put that back instead`
    : `it was renamed, and was called ${name}. Move it away; if there is no ${name} next to it, rename it back instead`;
  throw new ForeignSegmentError(`The log segment ${file} does not belong there: ${what}. Nothing in it is processed.`);
}

/** Undefined if it cannot be read; throws if it was written elsewhere. For a segment that need not be read now. */
export function findOwnHeader(segment: Segment, logName: string | undefined): SegmentHeader | undefined {
  const header = findSegmentHeader(segment);
  if (header !== undefined) assertWrittenHere(segment, logName, header);
  return header;
}

/** Its descriptor, for appending, and its size so far. Throws if it already exists. */
export function createSegment(folder: string, header: SegmentHeader): { descriptor: number; bytes: number } {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const { logName: log, firstPosition, id, previous, newestReceivedAtBefore } = header;
  const values = {
    ...{ format: FORMAT, log, first_position: firstPosition, id },
    previous: previous && { first_position: previous.firstPosition, id: previous.id, bytes: previous.bytes },
    newest_received_at_before: newestReceivedAtBefore,
    // For people who read the file.
    columns: COLUMNS,
  };
  const file = segmentFile(folder, firstPosition);
  // Never over another: should a second server write here, its records may be in there.
  const descriptor = openSync(file, 'ax', 0o600);
  try {
    const bytes = writeAll(descriptor, encodeFrame(JSON.stringify(values), new Uint8Array(), HEADER_SEED));
    fdatasyncSync(descriptor);
    // So that the file is found after a power loss.
    for (const path of [folder, dirname(folder)]) syncPath(path);
    return { descriptor, bytes };
  } catch (error) {
    closeSync(descriptor);
    // Half a segment would take up scarce space or open files. After any other error the file is left as it is.
    if (mayPassByItself(error)) removeSegment(file);
    throw error;
  }
}

/** At the end of the file. Returns how many bytes they are. If it fails, some of them may be in the file. */
export function writeAll(descriptor: number, pieces: Uint8Array[]): number {
  let bytes = 0;
  for (let next = 0; next < pieces.length; ) {
    let written = writevSync(descriptor, pieces.slice(next, next + PIECES_MAX));
    bytes += written;
    for (; next < pieces.length && written >= (pieces[next] as Uint8Array).byteLength; next++) {
      written -= (pieces[next] as Uint8Array).byteLength;
    }
    // The operating system may write less than it was asked to.
    if (written > 0) pieces[next] = (pieces[next] as Uint8Array).subarray(written);
  }
  return bytes;
}

export function removeSegment(file: string): void {
  rmSync(file, { force: true });
}

function listNames(folder: string): string[] {
  try {
    return readIfThere(() => readdirSync(folder)) ?? [];
  } catch (error) {
    if (!isAccessDenied(error)) throw error;
    const reason = (error as Error).message;
    throw new LogUnavailableError(
      `The log cannot be read by this user: ${reason}. It is not damaged; sluice doctor says what to do.`,
    );
  }
}

/** Undefined if there is no such file or folder. */
export function readIfThere<T>(read: () => T, what = 'The log'): T | undefined {
  try {
    return read();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    if (mayPassByItself(error))
      throw new LogUnavailableError(`${what} cannot be read now: ${(error as Error).message}.`);
    throw error;
  }
}
