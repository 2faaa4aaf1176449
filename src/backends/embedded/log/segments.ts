/**
 * The files of the embedded log: `<folder>/<first position>.log`, a text file of frames (`./frames.ts`): the header of the
 * segment, then its records. A segment is appended to by one thread of one process, and never after a restart: a new
 * process always starts a new segment. So records that follow a failed fsync are never appended after bytes that the disk
 * may not have. Once its records are processed, a segment is compressed: `….log.zst`.
 *
 * Positions have no gaps: a segment contains every position from its own first to the next segment's first, so a reader
 * notices missing records. An operator who gives up a damaged segment renames it to `….log.lost`, which keeps its
 * positions without its records. If a start finds that the log has lost its end, or that there is a gap between two
 * segments, it leaves an empty `….log.missing`: the records from that position up to the next segment were acknowledged
 * and are not here. If the records are put back, the segment wins over both kinds of marker (`./recovery.ts`). A start
 * after the newest segment was given up continues at the end that `log-ends` has; without that, the number of its records is
 * unknown, and it continues `LOST_POSITIONS` after it.
 *
 * The header says in which log (`./name.ts`) and from which position on the segment was written. A segment found elsewhere
 * was copied or renamed; it is never read, since its records would be processed again. The header also has the size of the
 * segment before it, so that one that was cut short is noticed by its size.
 */

import {
  closeSync,
  createReadStream,
  createWriteStream,
  fdatasyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writevSync,
} from 'node:fs';
import { utimes } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { constants, createZstdCompress, zstdDecompressSync } from 'node:zlib';
import { identityIn, identityOf } from '../../../data-folder/file-identity.ts';
import { sizeOfFile } from '../../../data-folder/files.ts';
import { syncPath } from '../../../data-folder/write-durably.ts';
import { ForeignSegmentError, LogCorruptError, LogUnavailableError } from '../../../log.ts';
import { SECOND_MS } from '../../../model.ts';
import { isAccessDenied, mayPassByItself } from '../disk.ts';
import { COLUMNS, encodeFrame, frameAt, headerIn, isIntact, seedOf } from './frames.ts';

export interface Segment {
  readonly file: string;
  readonly firstPosition: number;
  /**
   * `lost`: given up by an operator, its records are not read. `missing`: an empty marker file, of acknowledged records
   * that are gone.
   */
  readonly state: 'records' | 'lost' | 'missing';
  readonly isCompressed: boolean;
}

/** An empty file that stands for records that are gone, or were given up. */
export interface Marker extends Pick<Segment, 'file' | 'firstPosition'> {
  readonly state: 'lost' | 'missing';
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
}

/** A header that was read from its segment. */
interface FoundHeader extends SegmentHeader {
  /** Where the first record begins. */
  readonly end: number;
}

const NAME_DIGITS = 16;
const SEGMENT_NAME = /^(\d{16})\.log(?:\.(zst|lost|missing))?$/;
/** If several files have the same position, the first suffix in this list wins. */
const SUFFIXES = [undefined, 'zst', 'lost', 'missing'];
/** The seed of the first frame, before that of the segment is known. */
const HEADER_SEED = 0;
/** More than the first frame of a segment has. */
export const HEADER_BYTES_MAX = 1_024;
/** No block of Zstandard is larger, with the header of its file. */
const FIRST_BLOCK_BYTES = 132 * 1_024;
const FORMAT = 1;
/** How many pieces of memory the operating system takes in one call. */
const PIECES_MAX = 1_024;
/** Higher levels of compression save little more, and take several times as long. */
const COMPRESSION_LEVEL = 1;
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

/** In order of position. Also those whose position has a segment. */
export function listMarkers(folder: string): Marker[] {
  return listNames(folder)
    .toSorted()
    .flatMap((name) => {
      const [, digits, state] = SEGMENT_NAME.exec(name) ?? [];
      const file = join(folder, name);
      if ((state !== 'lost' && state !== 'missing') || sizeOfFile(file) > 0) return [];
      return [{ file, firstPosition: Number(digits), state }];
    });
}

/** Those with readable records. */
export function listReadable(folder: string): Segment[] {
  return listSegments(folder).filter(holdsRecords);
}

export function segmentFile(folder: string, firstPosition: number): string {
  return join(folder, `${String(firstPosition).padStart(NAME_DIGITS, '0')}.log`);
}

/** Notes what the positions from `position` up to the next segment are. Survives a power loss. */
export function makeMarker(folder: string, position: number, state: Marker['state']): void {
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
    `With the server stopped, put ${file} back${other} next to the files that are there now. ` +
    `To continue without these records, ${giveUp}.`
  );
}

/** What an operator can do about a segment that is damaged. */
export function restoreOrGiveUp({ file }: Pick<Segment, 'file'>): string {
  return (
    `With the server stopped, put ${file} back from a backup. To continue without those of its records that are not ` +
    `processed yet, rename ${file} to ${file.replace(/\.zst$/, '')}.lost.`
  );
}

export function damagedText(segment: Pick<Segment, 'file'>, what: string): string {
  return `The log segment ${segment.file} is damaged: ${what}. ${restoreOrGiveUp(segment)}`;
}

/**
 * From the first bytes of a segment. Undefined if they have no readable header: a start was interrupted, or it is damaged.
 * Throws for a header that this version does not know.
 */
export function segmentHeaderIn(bytes: Buffer, file: string): FoundHeader | undefined {
  const frame = frameAt(bytes, 0, HEADER_SEED);
  if (frame === null || frame.end > bytes.length || !isIntact(bytes, frame, HEADER_SEED)) return undefined;
  const values = JSON.parse(headerIn(bytes, frame)) as {
    readonly format: number;
    readonly log: string;
    readonly first_position: number;
    readonly id: string;
    readonly previous: { readonly first_position: number; readonly id: string; readonly bytes: number } | null;
  };
  if (values.format !== FORMAT) {
    throw new LogCorruptError(`The log segment ${file} has the format ${values.format}, which ${OTHER_VERSION}`);
  }
  const { previous } = values;
  return {
    logName: values.log,
    firstPosition: values.first_position,
    id: values.id,
    previous: previous && { firstPosition: previous.first_position, id: previous.id, bytes: previous.bytes },
    end: frame.end,
  };
}

/** Undefined if it cannot be read, which its readers report. Of a compressed segment it decompresses the beginning. */
export function findSegmentHeader({ file, isCompressed }: Segment): FoundHeader | undefined {
  try {
    if (!isCompressed) return segmentHeaderIn(firstBytes(file, HEADER_BYTES_MAX), file);
    const block = firstBytes(file, FIRST_BLOCK_BYTES);
    return segmentHeaderIn(zstdDecompressSync(block, { finishFlush: constants.ZSTD_e_continue }), file);
  } catch {
    return undefined;
  }
}

function firstBytes(file: string, bytesMax: number): Buffer {
  const descriptor = openSync(file, 'r');
  try {
    const bytes = Buffer.alloc(bytesMax);
    return bytes.subarray(0, readSync(descriptor, bytes, 0, bytes.length, 0));
  } finally {
    closeSync(descriptor);
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

/**
 * Undefined if it cannot be read or is compressed; throws if it was written elsewhere. For a segment that need not be read
 * now.
 */
export function findOwnHeader(segment: Segment, logName: string | undefined): FoundHeader | undefined {
  const header = segment.isCompressed ? undefined : findSegmentHeader(segment);
  if (header !== undefined) assertWrittenHere(segment, logName, header);
  return header;
}

/**
 * The segment that the writer has open. An operating system lets any process move or remove an open file: the writer then
 * appends to a file that no start finds, without an error. And any process may append to it, or cut it short. So before
 * each commit, and after it before anything is acknowledged, the writer checks that the file is still the one under its
 * name, and has the size that it should have. The name is the one that a start uses, so a link on the way that was pointed
 * elsewhere is noticed, too. Content that was overwritten in place is not noticed.
 */
export class SegmentWriter {
  readonly header: SegmentHeader;
  readonly seed: number;
  /** Its size, without what is not committed. */
  bytes = 0;
  readonly #descriptor: number;
  readonly #file: string;
  readonly #identity: string;

  /** Creates it. Throws if it already exists. */
  constructor(folder: string, header: SegmentHeader) {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    this.header = header;
    this.seed = seedOf(header.id);
    this.#file = segmentFile(folder, header.firstPosition);
    // Never over another: should a second server write here, its records may be in there.
    this.#descriptor = openSync(this.#file, 'ax', 0o600);
    try {
      this.bytes = this.append(encodeFrame(headerText(header), new Uint8Array(), HEADER_SEED));
      this.sync();
      // So that the file is found after a power loss.
      for (const path of [folder, dirname(folder)]) syncPath(path);
    } catch (error) {
      this.close();
      // Half a segment would take up scarce space or open files. After any other error the file is left as it is.
      if (mayPassByItself(error)) removeSegment(this.#file);
      throw error;
    }
    this.#identity = identityOf(this.#file);
  }

  /** At the end of the file. Returns how many bytes they are. If it fails, some of them may be in the file. */
  append(pieces: Uint8Array[]): number {
    let bytes = 0;
    for (let next = 0; next < pieces.length; ) {
      let written = writevSync(this.#descriptor, pieces.slice(next, next + PIECES_MAX));
      bytes += written;
      for (; next < pieces.length && written >= (pieces[next] as Uint8Array).byteLength; next++) {
        written -= (pieces[next] as Uint8Array).byteLength;
      }
      // The operating system may write less than it was asked to.
      if (written > 0) pieces[next] = (pieces[next] as Uint8Array).subarray(written);
    }
    return bytes;
  }

  sync(): void {
    fdatasyncSync(this.#descriptor);
  }

  /** Removes what was appended since the last commit. */
  cutOff(): void {
    ftruncateSync(this.#descriptor, this.bytes);
  }

  close(): void {
    closeSync(this.#descriptor);
  }

  /** One `stat`. Also throws if it fails. */
  assertInPlace(): void {
    const stat = statSync(this.#file, { throwIfNoEntry: false, bigint: true });
    if (stat === undefined || identityIn(stat) !== this.#identity) throw notInPlace(this.#file);
    if (Number(stat.size) !== this.bytes) throw changedInPlace(this.#file, Number(stat.size), this.bytes);
  }
}

function notInPlace(file: string): LogUnavailableError {
  return new LogUnavailableError(
    `${resolve(file)} was moved, removed or replaced while this server was writing to it, or a link on the way to it was pointed elsewhere, ` +
      'so a restart would not find what is written now. This server ends. Put the file, or the link, back in its place, next to the files that are there, ' +
      'then start the server: requests that it acknowledged may be in there. If it is gone, start the server anyway: it reports acknowledged requests ' +
      'that are missing.',
    true,
  );
}

function changedInPlace(file: string, bytes: number, expected: number): LogUnavailableError {
  return new LogUnavailableError(
    `${resolve(file)} was changed by another program while this server was writing to it: it has ${bytes} bytes, and should have ${expected}. ` +
      'This server ends. Keep other programs, such as logrotate, away from its folder, then start the server: it cuts off what was appended, ' +
      'and reports what is missing.',
    true,
  );
}

function headerText({ logName: log, firstPosition, id, previous }: SegmentHeader): string {
  return JSON.stringify({
    ...{ format: FORMAT, log, first_position: firstPosition, id },
    previous: previous && { first_position: previous.firstPosition, id: previous.id, bytes: previous.bytes },
    // For people who read the file.
    columns: COLUMNS,
  });
}

/**
 * Compresses a processed segment to a fifth of its size, in Node's thread pool. It is only read again to rebuild a store,
 * so it is decompressed whole. The new file is complete and synced before it gets its name, and the old one is removed
 * after that; while both are there, the old one counts. The time of the new file is that of its newest record: retention
 * goes by it. If it rejects, the segment is as it was.
 */
export async function compressSegment({ file }: Segment, newestReceivedAt: number): Promise<void> {
  const [target, draft] = [`${file}.zst`, `${file}.zst.draft`];
  const params = { [constants.ZSTD_c_compressionLevel]: COMPRESSION_LEVEL, [constants.ZSTD_c_checksumFlag]: 1 };
  try {
    await pipeline(
      createReadStream(file),
      createZstdCompress({ params }),
      createWriteStream(draft, { mode: 0o600, flush: true }),
    );
    await utimes(draft, newestReceivedAt / SECOND_MS, newestReceivedAt / SECOND_MS);
    renameSync(draft, target);
    syncPath(dirname(file));
  } catch (error) {
    removeSegment(draft);
    throw error;
  }
  removeSegment(file);
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
