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
import { LOCAL_PARTITION, LogCorruptError, type LogHeader, type LogRecord, LogUnavailableError } from '../../../log.ts';
import type { ForeignFormat, KeyKind, Rejection } from '../../../model.ts';
import { isAccessDenied, isOutOfFiles } from '../disk.ts';
import { type FrameBounds, frameAt, headerIn, isIntact, nextLine, PREFIX_BYTES, seedOf } from './frames.ts';
import {
  assertWrittenHere,
  findIdentity,
  type HeaderValues,
  IDENTITY_BYTES_MAX,
  identityIn,
  type Segment,
  type SegmentId,
  type SegmentIdentity,
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

/** Limit of bodies and rejections in memory at once, plus the one record that exceeds it. */
export const BATCH_BYTES_MAX = 16 * 1024 * 1024;
/** How much is read from the file at once to find records, or more if one record is larger. */
const CHUNK_BYTES = 64 * 1024;
/** Distance of the remembered places in a segment. */
const INDEX_STEP_BYTES = 64 * 1024;
const CACHED_INDEXES_MAX = 16;

/** Where records end that are durable: nothing behind it is read. */
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
  /** The name of its log (`log/name-and-end.ts`). */
  readonly logName: string | undefined;
  readonly from: number;
  /**
   * Where the next segment begins; undefined for the newest segment, which may still grow. A record from there on was
   * written by a server that had lost its lock, and was never acknowledged (`data-folder/held-lock.ts`).
   */
  readonly until: number | undefined;
  readonly next: Segment | undefined;
  /** Of the newest segment nothing after it is read. Undefined: whatever is there. */
  readonly durable: DurableEnd | undefined;
}

export interface ReadRecords {
  readonly records: LogRecord[];
  /** Whether the segment has no more records after these. */
  readonly isEnd: boolean;
}

/** What a reader remembers of the segments that it has read: places of records, and the last decompressed segment. */
export class SegmentCache {
  readonly #indexes = new Map<string, SparseIndex>();
  #decompressed: { readonly file: string; readonly bytes: Buffer } | undefined;

  indexOf({ id }: SegmentId): SparseIndex {
    let index = this.#indexes.get(id);
    if (index === undefined) {
      if (this.#indexes.size >= CACHED_INDEXES_MAX) this.#indexes.clear();
      index = new SparseIndex();
      this.#indexes.set(id, index);
    }
    return index;
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

interface Place {
  readonly position: number;
  readonly offset: number;
}

/** Some places of a segment, in order. */
class SparseIndex {
  readonly #places: Place[] = [];

  note(position: number, offset: number): void {
    if (offset >= (this.#places.at(-1)?.offset ?? 0) + INDEX_STEP_BYTES) this.#places.push({ position, offset });
  }

  /** The nearest place at or before a position, in a segment of this size: it may have been cut short. */
  before(position: number, size: number): Place | undefined {
    return this.#places.findLast((place) => place.position <= position && place.offset < size);
  }
}

/** A record that was found, in bytes that were read. */
interface FoundRecord {
  readonly position: number;
  readonly bytes: Buffer;
  readonly frame: FrameBounds;
  /** Where the record begins and ends in the segment. */
  readonly offset: number;
  readonly end: number;
}

/** A segment that is open for reading. */
export class OpenSegment implements Disposable {
  readonly identity: SegmentIdentity;
  readonly size: number;
  readonly #read: (offset: number, length: number) => Buffer;
  readonly #close: () => void;
  readonly #index: SparseIndex;
  readonly #seed: number;
  /** Where its first record begins. */
  readonly firstOffset: number;
  /** Where the last search for records has ended. */
  scannedTo = 0;

  /** Throws the errors of the operating system, and `UnreadableSegmentError` if it does not say which one it is. */
  constructor({ file, isCompressed }: Segment, cache: SegmentCache) {
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
    const found = identityIn(this.#read(0, IDENTITY_BYTES_MAX));
    if (found === undefined) {
      this.#close();
      throw new UnreadableSegmentError(
        `The log segment ${file} is damaged: it does not say which one it is. ${restoreOrGiveUp(file)}`,
      );
    }
    this.identity = found.identity;
    this.firstOffset = found.end;
    this.#seed = seedOf(found.identity.id);
    this.#index = cache.indexOf(found.identity);
  }

  [Symbol.dispose](): void {
    this.#close();
  }

  /**
   * Records from a position on, up to the first that cannot be found. With their bodies, if `bodyBytes` says about how many
   * bytes of them are wanted.
   */
  *recordsFrom(position: number, bodyBytes = 0): Generator<FoundRecord> {
    const start = this.#placeOf(position);
    if (start === undefined) return;
    yield* this.#scan(start, bodyBytes);
  }

  #placeOf(wanted: number): Place | undefined {
    const first = { position: this.identity.position, offset: this.firstOffset };
    let place = this.#index.before(wanted, this.size) ?? first;
    while (place.position < wanted) {
      let next: Place | undefined;
      for (const { position, end } of this.#scan(place, 0)) {
        next = { position: position + 1, offset: end };
        if (next.position === wanted) return next;
      }
      place = next ?? place;
      // What is damaged here was processed before: it does not hide what follows it.
      const found = this.nextIntact(place.offset);
      if (found === undefined || found.position > wanted) return undefined;
      place = found;
    }
    return place;
  }

  /** From a place on. Remembers places that it comes across. */
  *#scan(start: Place, bodyBytes: number): Generator<FoundRecord> {
    const chunkBytes = bodyBytes === 0 ? CHUNK_BYTES : Math.min(bodyBytes, BATCH_BYTES_MAX) + CHUNK_BYTES;
    let { position, offset } = start;
    let bytes: Buffer = Buffer.alloc(0);
    let bytesAt = offset;
    for (; ; position++) {
      this.scannedTo = offset;
      const hasPrefix = offset + PREFIX_BYTES <= bytesAt + bytes.length;
      if (!hasPrefix) [bytes, bytesAt] = [this.#read(offset, chunkBytes), offset];
      let frame = frameAt(bytes, offset - bytesAt, this.#seed);
      if (frame === null || bytesAt + frame.end > this.size) return;
      if ((bodyBytes > 0 ? frame.end : frame.bodyStart) > bytes.length) {
        [bytes, bytesAt] = [this.#read(offset, Math.max(chunkBytes, frame.end - frame.start)), offset];
        frame = frameAt(bytes, 0, this.#seed) as FrameBounds;
      }
      const end = bytesAt + frame.end;
      this.#index.note(position, offset);
      yield { position, bytes, frame, offset, end };
      offset = end;
    }
  }

  /** Where the records end that are intact. */
  endOfRecords(): Place {
    const { identity, size, firstOffset } = this;
    let end = this.#index.before(Number.POSITIVE_INFINITY, size) ?? {
      position: identity.position,
      offset: firstOffset,
    };
    for (const found of this.recordsFrom(end.position, CHUNK_BYTES)) {
      if (!this.isIntact(found)) break;
      end = { position: found.position + 1, offset: found.end };
    }
    return end;
  }

  /** Whether no byte of it, with its body, has changed. */
  isIntact({ bytes, frame }: FoundRecord): boolean {
    return isIntact(bytes, frame, this.#seed);
  }

  /**
   * The next intact record from an offset on, wherever it begins. Only for a damaged segment: it reads all bytes.
   */
  nextIntact(offset: number): (Place & { readonly commit: number; readonly end: number }) | undefined {
    for (let at = offset; at < this.size; at += CHUNK_BYTES) {
      // A frame begins in this part, and may end in a later one.
      const bytes = this.#read(at, 2 * CHUNK_BYTES);
      for (let line = at === offset ? 0 : nextLine(bytes, 0); line >= 0 && line <= CHUNK_BYTES; ) {
        const frame = frameAt(bytes, line, this.#seed);
        if (frame !== null && at + frame.end <= this.size) {
          const whole = this.#read(at + line, frame.end - frame.start);
          const bounds = frameAt(whole, 0, this.#seed) as FrameBounds;
          if (isIntact(whole, bounds, this.#seed)) {
            const [position, commit] = headerIn(whole, bounds) as HeaderValues;
            return { position, commit, offset: at + line, end: at + frame.end };
          }
        }
        line = nextLine(bytes, line);
      }
    }
    return undefined;
  }
}

/**
 * At least one record if there is one, then as many as bring the bodies to `bytesMax` bytes. Records before a damaged or
 * missing one are returned, so that only a read of that one itself fails.
 */
export function readRecords(range: SegmentRange, bytesMax: number, cache = new SegmentCache()): ReadRecords {
  const limit = limitOf(range);
  const records: LogRecord[] = [];
  if (range.from >= limit) return { records, isEnd: true };
  return inSegment(range, cache, { records, isEnd: true }, (open) => {
    const { segment, until } = range;
    let position = range.from;
    let bytes = 0;
    let bytesInAll = 0;
    for (const found of open.recordsFrom(position, bytesMax)) {
      const header = open.isIntact(found) ? (headerIn(found.bytes, found.frame) as HeaderValues) : undefined;
      if (header?.[POSITION] !== position) {
        if (records.length > 0) return { records, isEnd: false };
        if (header === undefined) throw damaged(range, position);
        throw new MissingPositionsError(segment.file, position, header[POSITION]);
      }
      const { bodyStart, bodyEnd, end, start } = found.frame;
      records.push(toRecord(header, found.bytes.subarray(bodyStart, bodyEnd)));
      position += 1;
      bytes += bodyEnd - bodyStart;
      bytesInAll += end - start;
      if (position === limit || bytes >= bytesMax || bytesInAll >= BATCH_BYTES_MAX) {
        return { records, isEnd: position === limit };
      }
    }
    // Nothing follows here, unless it is damaged.
    const isEnd = open.size === open.scannedTo || open.nextIntact(open.scannedTo) === undefined;
    if (isEnd && until === undefined) return { records, isEnd };
    if (records.length > 0) return { records, isEnd: false };
    throw isEnd ? new MissingPositionsError(segment.file, position, limit) : damaged(range, position);
  });
}

export interface ReadHeaders {
  readonly headers: LogHeader[];
  /** The error of the first record that is not there; undefined if there was none, or if enough were found before. */
  readonly problem: LogCorruptError | undefined;
}

/** Headers of the records of the range, or of those of one request: at most `countMax`. */
export function readHeaders(
  range: SegmentRange,
  cache: SegmentCache,
  { countMax = Number.POSITIVE_INFINITY, traceId }: { readonly countMax?: number; readonly traceId?: string } = {},
): ReadHeaders {
  const limit = limitOf(range);
  const headers: LogHeader[] = [];
  if (range.from >= limit) return { headers, problem: undefined };
  return inSegment(range, cache, { headers, problem: undefined }, (open) => {
    let position = range.from;
    for (const { bytes, frame } of open.recordsFrom(position)) {
      if (traceId === undefined || bytes.subarray(frame.headerStart, frame.bodyStart).includes(traceId)) {
        const header = headerIn(bytes, frame) as HeaderValues | undefined;
        if (header?.[POSITION] !== position) break;
        const { body: _none, ...rest } = toRecord(header, NO_BODY);
        if (traceId === undefined || rest.traceId === traceId) headers.push(rest);
      }
      position += 1;
      if (position === limit || headers.length >= countMax) return { headers, problem: undefined };
    }
    return { headers, problem: range.until === undefined ? undefined : damaged(range, position) };
  });
}

/** The newest record of the range below a position; undefined if there is none. */
export function newestBefore(
  range: SegmentRange,
  cache = new SegmentCache(),
  below = Number.MAX_SAFE_INTEGER,
): Pick<LogHeader, 'position' | 'traceId' | 'receivedAt'> | undefined {
  const last = Math.min(below, endOfSegment(range, cache)) - 1;
  if (last < range.segment.firstPosition) return undefined;
  return readHeaders({ ...range, from: last }, cache, { countMax: 1 }).headers[0];
}

/** Where the records of a segment end that can be read, durable or not. Undefined if none can be. */
export function findEnd(segment: Segment): DurableEnd | undefined {
  try {
    using open = new OpenSegment(segment, new SegmentCache());
    const { position, offset } = open.endOfRecords();
    return { position, segment: open.identity, bytes: offset };
  } catch {
    return undefined;
  }
}

/** Whether it has no record; also of one that cannot be read, which its readers report. */
export function isEmpty(segment: Segment): boolean {
  try {
    using open = new OpenSegment(segment, new SegmentCache());
    return open.recordsFrom(segment.firstPosition).next().done === true;
  } catch {
    return true;
  }
}

/** The position after the last record that counts. */
export function endOfSegment(range: SegmentRange, cache = new SegmentCache()): number {
  const { segment } = range;
  const limit = limitOf(range);
  if (limit <= segment.firstPosition) return segment.firstPosition;
  // Only complete ones are compressed.
  if (segment.isCompressed && range.until !== undefined) return limit;
  return inSegment(range, cache, segment.firstPosition, (open) =>
    isComplete(range, open) ? limit : Math.min(limit, open.endOfRecords().position),
  );
}

/**
 * An interrupted start leaves a segment that does not say which one it is, and nothing else: that is synced before
 * anything is appended.
 */
export function isUnfinished(file: string): boolean {
  if (statSync(file).size > IDENTITY_BYTES_MAX) return false;
  const bytes = readFileSync(file);
  // The header of a record is a line like this.
  return identityIn(bytes) === undefined && !/\n[0-9a-f ]{36}\[/.test(bytes.toString('latin1'));
}

/** By its size, as the next segment or the durable end has it; false if that is not known. */
function isComplete({ next, durable }: SegmentRange, { identity, size }: OpenSegment): boolean {
  if (next === undefined) return durable?.segment.id === identity.id && size >= durable.bytes;
  const previous = findIdentity(next)?.previous;
  return previous?.id === identity.id && size >= previous.bytes;
}

/** The position after the last one that may be read; infinity if that is not known. */
function limitOf({ until, durable }: SegmentRange): number {
  return until ?? durable?.position ?? Number.POSITIVE_INFINITY;
}

const NO_BODY = new Uint8Array(0);

/** Indexes in `HeaderValues`. */
const POSITION = 0;

/** `whenUnfinished` is for a newest segment that is just being created. */
function inSegment<T>(range: SegmentRange, cache: SegmentCache, whenUnfinished: T, use: (open: OpenSegment) => T): T {
  const { file, isCompressed } = range.segment;
  if (!isCompressed) cache.release();
  try {
    if (range.until === undefined && isUnfinished(file)) return whenUnfinished;
    using open = new OpenSegment(range.segment, cache);
    assertWrittenHere(range.segment, range.logName, open.identity);
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
    if (isOutOfFiles(error)) throw new LogUnavailableError(`The log segment ${file} cannot be read now: ${message}.`);
    throw new UnreadableSegmentError(`The log segment ${file} cannot be read: ${message}. ${restoreOrGiveUp(file)}`);
  }
}

function toRecord(header: HeaderValues, body: Uint8Array): LogRecord {
  const [
    position,
    ,
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
    rejections: rejections === null ? [] : (JSON.parse(rejections) as Rejection[]),
    body,
  };
  if (format === null && droppedByClient === null) return record;
  return {
    ...record,
    ...(format !== null && { format: format as ForeignFormat }),
    ...(droppedByClient !== null && { droppedByClient }),
  };
}

function damaged({ segment }: SegmentRange, position: number): LogCorruptError {
  const { file } = segment;
  return new LogCorruptError(
    `The record at position ${position} of the log segment ${file} is damaged. ${restoreOrGiveUp(file)}`,
  );
}

/** What an operator can do about a partly unreadable segment. */
function restoreOrGiveUp(file: string): string {
  return (
    `With the server stopped, put ${file} back from a backup. To go on without those of its records that are not ` +
    `processed yet, rename it to ${file.replace(/\.zst$/, '')}.lost.`
  );
}
