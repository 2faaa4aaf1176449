/**
 * Reads one segment of the embedded log: records with their bodies, headers without them, the records of one request.
 * Notices missing positions, and any changed byte in bodies and their headers. Headers alone cannot be checked: the
 * checksum of a record covers its body.
 *
 * A segment has no index. Records are found by skipping from one to the next, from the nearest place that a
 * `SegmentCache` remembers: a sparse index, as of the last reads. Each call opens the segment and closes it again.
 */

import { closeSync, fstatSync, openSync, readFileSync, readSync, statSync } from 'node:fs';
import { zstdDecompressSync } from 'node:zlib';
import { LogCorruptError, type LogHeader, type LogRecord, LogUnavailableError } from '../../../log.ts';
import { isAccessDenied, isDiskError, mayPassByItself } from '../disk.ts';
import {
  type DecodedHeader,
  decodeHeader,
  frameAt,
  type FrameBounds,
  headerIn,
  isIntact,
  mayHaveSecondFrame,
  nextLine,
  PREFIX_BYTES,
  seedOf,
} from './frames.ts';
import {
  assertWrittenHere,
  damagedText,
  findSegmentHeader,
  HEADER_BYTES_MAX,
  restoreOrGiveUp,
  type Segment,
  segmentHeaderIn,
  type SegmentHeader,
  type SegmentId,
} from './segments.ts';

/** The segment was removed, or given up, since the folder was listed. */
export class SegmentGoneError extends LogUnavailableError {}

/** Nothing in the segment can be read: all of it is damaged, or this user has no permission to read it. */
export class UnreadableSegmentError extends LogCorruptError {}

/** Positions that a segment should contain and does not: from `from` to `to`, exclusive. */
export class MissingPositionsError extends LogCorruptError {
  readonly from: number;
  readonly to: number;
  constructor(segment: Segment, from: number, to: number) {
    super(damagedText(segment, `it has no position ${from}, where ${to} is next`));
    this.from = from;
    this.to = to;
  }
}

/** Limit of bodies and headers in memory at once, plus the one record that exceeds it. */
export const BATCH_BYTES_MAX = 16 * 1024 * 1024;
/** How much is read from the file at once to find records, or more if one record is larger. */
const CHUNK_BYTES = 64 * 1024;
/** Distance of the remembered places in a segment. */
const INDEX_STEP_BYTES = 64 * 1024;
const CACHED_INDEXES_MAX = 16;

/** The end of the durable records. */
export interface DurableEnd {
  /** The position after the last one. */
  readonly position: number;
  /** The segment of the last one. */
  readonly segment: SegmentId;
  /** Where it ends in that segment. */
  readonly bytes: number;
}

/** The part of a segment to read. */
export interface SegmentRange {
  readonly segment: Segment;
  /** The name of its log (`./name.ts`). */
  readonly logName: string | undefined;
  readonly from: number;
  /**
   * Where the next segment begins; undefined for the newest segment, which may still grow. A record from there on was
   * written by a server that had lost its lock, and was never acknowledged (`data-folder/held-lock.ts`).
   */
  readonly until: number | undefined;
  readonly next: Segment | undefined;
  readonly durable: DurableEnd | undefined;
  /** Of the newest segment all records up to the durable end are read, and none after it. Otherwise whatever is there. */
  readonly isDurableOnly: boolean;
}

/** For a folder without a running server. */
export const UNBOUNDED = { durable: undefined, isDurableOnly: false } as const;

/** What the segments contain from a position on, in order, with the markers of missing records. */
export function rangesOf(
  segments: readonly Segment[],
  log: Pick<SegmentRange, 'logName' | 'durable' | 'isDurableOnly'>,
  position = 0,
): SegmentRange[] {
  const startAt = segments.findLastIndex(({ firstPosition }) => firstPosition <= position);
  const wanted = segments.slice(Math.max(0, startAt));
  return wanted.flatMap((segment, index) => {
    if (segment.state === 'lost') return [];
    const next = wanted[index + 1];
    return [{ ...log, segment, from: Math.max(position, segment.firstPosition), until: next?.firstPosition, next }];
  });
}

export function isGapMarker({ segment }: SegmentRange): boolean {
  return segment.state === 'missing';
}

interface ReadRecords {
  readonly records: LogRecord[];
  /** Whether the segment has no more records after these. */
  readonly isEnd: boolean;
}

/** What a reader remembers of the segments that it has read: places of records, and the last decompressed segment. */
export class SegmentCache {
  /** By segment: some places of records in it, in order. */
  readonly #indexes = new Map<string, Place[]>();
  #decompressed: { readonly file: string; readonly bytes: Buffer } | undefined;

  indexOf({ id }: SegmentId): Place[] {
    // Segments are read in order, so the first is the least useful.
    const [oldest = ''] = this.#indexes.keys();
    if (this.#indexes.size >= CACHED_INDEXES_MAX && !this.#indexes.has(id)) this.#indexes.delete(oldest);
    return this.#indexes.getOrInsertComputed(id, () => []);
  }

  decompressed(file: string): Buffer {
    if (this.#decompressed?.file !== file) {
      this.#decompressed = undefined;
      this.#decompressed = { file, bytes: zstdDecompressSync(readFileSync(file)) };
    }
    return this.#decompressed.bytes;
  }

  /** The last decompressed segment is no longer needed. */
  release(): void {
    this.#decompressed = undefined;
  }
}

/** Where a record begins, or would begin. */
interface Place {
  readonly position: number;
  readonly offset: number;
}

interface IntactRecord extends Place {
  readonly commit: number;
  readonly end: number;
}

/** A record that was found, in bytes that were read. */
interface FoundRecord extends Place {
  readonly bytes: Buffer;
  readonly frame: FrameBounds;
  /** Where it ends in the segment. */
  readonly end: number;
}

/** A segment that is open for reading. */
export class SegmentReader implements Disposable {
  readonly header: SegmentHeader;
  readonly size: number;
  /** Where the first record begins. */
  readonly start: Place;
  readonly #read: (offset: number, length: number) => Buffer;
  readonly #close: () => void;
  readonly #index: Place[];
  readonly #seed: number;
  /** Places beyond this offset are not remembered: the writer may cut off what is not durable. */
  indexUpTo = Number.POSITIVE_INFINITY;

  /** Throws the errors of the operating system, and `UnreadableSegmentError` if it has no readable header. */
  constructor(segment: Segment, cache: SegmentCache) {
    const { file, isCompressed } = segment;
    if (isCompressed) {
      const bytes = cache.decompressed(file);
      this.size = bytes.length;
      this.#read = (offset, length) => bytes.subarray(offset, offset + length);
      this.#close = () => undefined;
    } else {
      const descriptor = openSync(file, 'r');
      this.size = fstatSync(descriptor).size;
      this.#read = (offset, length) => {
        const bytes = Buffer.allocUnsafeSlow(Math.max(0, Math.min(length, this.size - offset)));
        return bytes.subarray(0, readSync(descriptor, bytes, 0, bytes.length, offset));
      };
      this.#close = () => closeSync(descriptor);
    }
    try {
      const header = segmentHeaderIn(this.#read(0, HEADER_BYTES_MAX), file);
      if (header === undefined) {
        throw new UnreadableSegmentError(damagedText(segment, 'it has no readable header'));
      }
      this.header = header;
      this.start = { position: header.firstPosition, offset: header.end };
    } catch (error) {
      this.#close();
      throw error;
    }
    this.#seed = seedOf(this.header.id);
    this.#index = cache.indexOf(this.header);
  }

  [Symbol.dispose](): void {
    this.#close();
  }

  /** The nearest known place at or before a position; the segment may have been cut short since. */
  #placeBefore(position: number): Place {
    return this.#index.findLast((place) => place.position <= position && place.offset < this.size) ?? this.start;
  }

  /** Where a record begins, or would begin if the segment ends before it; undefined if that cannot be found. */
  find(position: number): Place | undefined {
    let place = this.#placeBefore(position);
    while (place.position < position) {
      const from = place;
      for (const found of this.scan(from)) {
        place = { position: found.position + 1, offset: found.end };
        if (place.position === position) return place;
      }
      // Damage before the wanted position is processed already: skip it.
      const next = this.nextIntact(place.offset);
      if (next === undefined) return { position, offset: this.size };
      if (next.position > position) return undefined;
      place = next;
    }
    return place;
  }

  /**
   * Records from a place on, up to the first that is not there. Without `bodyBytes` only their headers are read; with it
   * their bodies, too, about so many bytes at once. Remembers places that it comes across.
   */
  *scan(from: Place, bodyBytes?: number): Generator<FoundRecord> {
    const withBodies = bodyBytes !== undefined;
    const chunkBytes = withBodies ? Math.min(bodyBytes, BATCH_BYTES_MAX) + CHUNK_BYTES : CHUNK_BYTES;
    let { position, offset } = from;
    let bytes: Buffer = Buffer.alloc(0);
    let bytesAt = offset;
    for (; ; position++) {
      const hasPrefix = offset + PREFIX_BYTES <= bytesAt + bytes.length;
      if (!hasPrefix) [bytes, bytesAt] = [this.#read(offset, chunkBytes), offset];
      let frame = frameAt(bytes, offset - bytesAt, this.#seed);
      if (frame === null || bytesAt + frame.end > this.size) return;
      if ((withBodies ? frame.end : frame.bodyStart) > bytes.length) {
        [bytes, bytesAt] = [this.#read(offset, Math.max(chunkBytes, frame.end - frame.start)), offset];
        frame = frameAt(bytes, 0, this.#seed);
        // The writer has cut the segment off meanwhile.
        if (frame === null || frame.end > bytes.length) return;
      }
      const end = bytesAt + frame.end;
      const indexedTo = this.#index.at(-1)?.offset ?? 0;
      if (end <= this.indexUpTo && offset >= indexedTo + INDEX_STEP_BYTES) this.#index.push({ position, offset });
      yield { position, bytes, frame, offset, end };
      offset = end;
    }
  }

  /** Where the intact records end. */
  endOfRecords(): Place {
    let end = this.#placeBefore(Number.POSITIVE_INFINITY);
    for (const found of this.scan(end, CHUNK_BYTES)) {
      if (!isIntact(found.bytes, found.frame, this.#seed)) break;
      end = { position: found.position + 1, offset: found.end };
    }
    return end;
  }

  /** Undefined if it is damaged. Requires that the record was found with its body. */
  decodeIntact({ bytes, frame }: FoundRecord): DecodedHeader | undefined {
    return isIntact(bytes, frame, this.#seed) ? decodeHeader(headerIn(bytes, frame)) : undefined;
  }

  /**
   * The next intact record from an offset on, wherever it begins. Only for a damaged segment: it reads all bytes.
   */
  nextIntact(offset: number): IntactRecord | undefined {
    for (let at = offset; at < this.size; at += CHUNK_BYTES) {
      // A frame begins in this part, and may end in a later one.
      const bytes = this.#read(at, 2 * CHUNK_BYTES);
      for (let line = at === offset ? 0 : nextLine(bytes, 0); line >= 0 && line <= CHUNK_BYTES; ) {
        const isFrame = frameAt(bytes, line, this.#seed) !== null;
        const found = isFrame ? this.#firstIntact(at + line) : undefined;
        if (found !== undefined) return found;
        line = nextLine(bytes, line);
      }
    }
    return undefined;
  }

  /** Of the frames that follow each other from an offset on: what is damaged may be the line feed between two of them. */
  #firstIntact(offset: number): IntactRecord | undefined {
    for (let at = offset; ; ) {
      const frame = frameAt(this.#read(at, PREFIX_BYTES), 0, this.#seed);
      if (frame === null || at + frame.end > this.size) return undefined;
      const bytes = this.#read(at, frame.end);
      const isWhole = bytes.length === frame.end && isIntact(bytes, frame, this.#seed);
      const decoded = isWhole ? decodeHeader(headerIn(bytes, frame)) : undefined;
      const end = at + frame.end;
      if (decoded !== undefined) return { position: decoded.header.position, commit: decoded.commit, offset: at, end };
      at = end;
    }
  }
}

/**
 * At least one record if there is one, then as many as bring the bodies to `bytesMax` bytes. Records before a damaged or
 * missing one are returned, so that only a read of that one itself fails.
 */
export function readRecords(range: SegmentRange, bytesMax: number, cache: SegmentCache): ReadRecords {
  const { segment, from } = range;
  const end = requiredEnd(range);
  const records: LogRecord[] = [];
  if (from >= end) return { records, isEnd: true };
  return inSegment(range, cache, { records, isEnd: true }, (open) => {
    const first = open.find(from);
    if (first === undefined) throw damaged(range, from);
    let place = first;
    let bytes = 0;
    let frameBytes = 0;
    for (const found of open.scan(place, bytesMax)) {
      const header = open.decodeIntact(found)?.header;
      if (header?.position !== place.position) {
        if (records.length > 0) return { records, isEnd: false };
        throw header === undefined ? damaged(range, from) : new MissingPositionsError(segment, from, header.position);
      }
      const { start, bodyStart, bodyEnd } = found.frame;
      records.push({ ...header, body: found.bytes.subarray(bodyStart, bodyEnd) });
      place = { position: found.position + 1, offset: found.end };
      bytes += bodyEnd - bodyStart;
      frameBytes += bodyEnd - start;
      const isEnd = place.position === end;
      if (isEnd || bytes >= bytesMax || frameBytes >= BATCH_BYTES_MAX) return { records, isEnd };
    }
    const isCutShort = open.nextIntact(place.offset) === undefined;
    if (isCutShort && end === Number.POSITIVE_INFINITY) return { records, isEnd: true };
    if (records.length > 0) return { records, isEnd: false };
    throw isCutShort ? new MissingPositionsError(segment, from, end) : damaged(range, from);
  });
}

interface ReadHeaders {
  readonly headers: LogHeader[];
  /** Set if reading stopped at a damaged or missing record, before `countMax`. */
  readonly problem: LogCorruptError | undefined;
}

/** Headers of the records of the range, or of those of one request: at most `countMax`. */
export function readHeaders(
  range: SegmentRange,
  cache: SegmentCache,
  { countMax = Number.POSITIVE_INFINITY, traceId }: { readonly countMax?: number; readonly traceId?: string } = {},
): ReadHeaders {
  const end = requiredEnd(range);
  const headers: LogHeader[] = [];
  if (range.from >= end) return { headers, problem: undefined };
  return inSegment(range, cache, { headers, problem: undefined }, (open) => {
    let position = range.from;
    const start = open.find(position);
    for (const { bytes, frame } of start === undefined ? [] : open.scan(start)) {
      if (traceId === undefined || bytes.subarray(frame.headerStart, frame.bodyStart).includes(traceId)) {
        const header = decodeHeader(headerIn(bytes, frame))?.header;
        if (header?.position !== position) break;
        if (traceId === undefined || header.traceId === traceId) headers.push(header);
      }
      position += 1;
      if (position === end || headers.length >= countMax) return { headers, problem: undefined };
    }
    return { headers, problem: end === Number.POSITIVE_INFINITY ? undefined : damaged(range, position) };
  });
}

/** The newest record of the range below a position, by order of appending; undefined if there is none. */
export function newestBefore(
  range: SegmentRange,
  cache = new SegmentCache(),
  below = Number.MAX_SAFE_INTEGER,
): LogRecord | undefined {
  const last = Math.min(below, endOfSegment(range, cache)) - 1;
  if (last < range.segment.firstPosition) return undefined;
  // With its body: the checksum is over both.
  return readRecords({ ...range, from: last }, 1, cache).records[0];
}

/** Where the intact records of a segment end, durable or not. Undefined if it cannot be read. */
export function findEnd(segment: Segment): DurableEnd | undefined {
  try {
    using open = new SegmentReader(segment, new SegmentCache());
    const { position, offset } = open.endOfRecords();
    return { position, segment: open.header, bytes: offset };
  } catch {
    return undefined;
  }
}

/** The position after the last record that counts. */
export function endOfSegment(range: SegmentRange, cache = new SegmentCache()): number {
  const { segment } = range;
  const end = requiredEnd(range);
  if (end <= segment.firstPosition) return segment.firstPosition;
  // Only complete ones are compressed, but the next one may be gone.
  if (segment.isCompressed && isFollowedByNext(range)) return end;
  return inSegment(range, cache, segment.firstPosition, (open) =>
    isComplete(range, open) ? end : Math.min(end, open.endOfRecords().position),
  );
}

/**
 * An interrupted start leaves a segment without a readable header, and nothing else: the header is synced before anything
 * is appended.
 */
export function isUnfinished(file: string): boolean {
  if (statSync(file).size > HEADER_BYTES_MAX) return false;
  const bytes = readFileSync(file);
  return segmentHeaderIn(bytes, file) === undefined && !mayHaveSecondFrame(bytes);
}

/** Whether the next segment was begun when this one was complete. */
function isFollowedByNext({ segment, next }: SegmentRange): boolean {
  return next !== undefined && findSegmentHeader(next)?.previous?.firstPosition === segment.firstPosition;
}

/** By its size, as the next segment or the durable end has it; false if that is not known. */
function isComplete({ next, durable, isDurableOnly }: SegmentRange, { header, size }: SegmentReader): boolean {
  if (next === undefined) return isDurableOnly && durable?.segment.id === header.id && size >= durable.bytes;
  const previous = findSegmentHeader(next)?.previous;
  return previous?.id === header.id && size >= previous.bytes;
}

/** The position before which the segment must have all records; infinity if that is not known. */
function requiredEnd({ until, durable, isDurableOnly }: SegmentRange): number {
  return until ?? (isDurableOnly ? durable?.position : undefined) ?? Number.POSITIVE_INFINITY;
}

/** `whenUnfinished` is for a newest segment that is just being created. */
function inSegment<T>(range: SegmentRange, cache: SegmentCache, whenUnfinished: T, use: (open: SegmentReader) => T): T {
  const { segment, logName, until, durable } = range;
  const { file, isCompressed } = segment;
  if (!isCompressed) cache.release();
  try {
    if (until === undefined && isUnfinished(file)) return whenUnfinished;
    using open = new SegmentReader(segment, cache);
    assertWrittenHere(segment, logName, open.header);
    if (until === undefined) open.indexUpTo = durable?.segment.id === open.header.id ? durable.bytes : 0;
    return use(open);
  } catch (error) {
    if (error instanceof LogCorruptError) throw error;
    const { message, code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') throw new SegmentGoneError(`The log segment ${file} is no longer there.`);
    if (isAccessDenied(error)) {
      throw new UnreadableSegmentError(
        `The log segment ${file} cannot be read by this user: ${message}. It is not damaged; sluice doctor says what to do.`,
      );
    }
    if (mayPassByItself(error))
      throw new LogUnavailableError(`The log segment ${file} cannot be read now: ${message}.`);
    if (isDiskError(error)) throw new LogUnavailableError(diskErrorText(file, message));
    if (code === undefined) throw error;
    throw new UnreadableSegmentError(`The log segment ${file} cannot be read: ${message}. ${restoreOrGiveUp(segment)}`);
  }
}

/** The disk may have the file whole, so it must not be given up. */
export function diskErrorText(file: string, reason: string): string {
  return `The disk failed to read the log segment ${file} (${reason}). Look at the disk (dmesg, smartctl) and do not remove or rename the file: it may be intact. Start the server again once the disk can be read; if it never can, restore a backup.`;
}

function damaged({ segment }: SegmentRange, position: number): LogCorruptError {
  return new LogCorruptError(
    `The record at position ${position} of the log segment ${segment.file} is damaged. ${restoreOrGiveUp(segment)}`,
  );
}
