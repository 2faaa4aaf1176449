/**
 * The reading half of the embedded event log. It reads beside the thread that writes, sees only what is durable (SQLite
 * shows a commit to others after its sync), and removes segments once they are processed and older than the retention.
 * `log/segment-reader.ts` reads and checks one segment.
 *
 * Limits: `find` reads every record from the position on, so it is meant for records that are not processed yet.
 * Several readers may be open at once; one of them may remove a segment that another is about to read, which then
 * continues after it.
 */

import { setImmediate } from 'node:timers/promises';
import {
  ForeignSegmentError,
  LOCAL_PARTITION,
  type LogBatch,
  LogCorruptError,
  LogGapError,
  type LogHeader,
  type LogReader,
  type LogRecord,
  LogUnavailableError,
  type LostRange,
} from '../../../log.ts';
import { positionsText, type ProcessedRecord } from '../../../log/continuity.ts';
import { isBackupRunning } from '../folder-lock.ts';
import { findLogEnd, findLogName, localLogName } from './name-and-end.ts';
import {
  BATCH_BYTES_MAX,
  endOfSegment,
  MissingPositionsError,
  newestBefore,
  readHeaders,
  readRecords,
  SegmentGoneError,
  type SegmentRange,
  UnreadableSegmentError,
} from './segment-reader.ts';
import {
  assertNotForeign,
  findIdentity,
  gapAdvice,
  hasWal,
  listSegments,
  LOST_POSITIONS,
  removeSegment,
  type Segment,
  segmentBytes,
  segmentFile,
} from './segments.ts';

export interface ReaderSetup {
  readonly folder: string;
  readonly retentionMs: number;
  readonly now: () => number;
}

const LISTINGS_MAX = 5;

/** The segments of the folder at one moment, from a position on. */
interface Listing {
  readonly ranges: SegmentRange[];
  /** The first position that is kept; infinity without any. */
  readonly firstKept: number;
  /** The newest segment was given up: the next start continues after it. */
  readonly isEndLost: boolean;
}

export function openSqliteLogReader(setup: ReaderSetup): LogReader {
  return new SqliteLogReader(setup);
}

class SqliteLogReader implements LogReader {
  readonly #setup: ReaderSetup;
  #nameFound: string | undefined;
  /** It has had segments: the newest is never removed. */
  #isUsed = false;

  constructor(setup: ReaderSetup) {
    this.#setup = setup;
  }

  readonly splitsRequests = false;

  /** Created only if there is none: a removed log still has one, and commands that read it change nothing. */
  get name(): string {
    return this.#findName() ?? localLogName(this.#setup.folder);
  }

  /** Looked up until there is one, and then cached. */
  #findName(): string | undefined {
    this.#nameFound ??= findLogName(this.#setup.folder);
    return this.#nameFound;
  }

  async partitions(): Promise<number[]> {
    this.#isUsed ||= listSegments(this.#setup.folder).length > 0;
    return this.#isUsed ? [LOCAL_PARTITION] : [];
  }

  async read(_partition: number, position: number, bytesMax: number): Promise<LogBatch> {
    return this.#withListing(position, ({ ranges, firstKept }) => {
      if (position > 0 && firstKept > position) throw this.#removed(position, firstKept);
      let records: LogRecord[] = [];
      let bytesLeft = Math.min(bytesMax, BATCH_BYTES_MAX);
      for (const range of ranges) {
        if (isGapMarker(range)) {
          // The records before it can be processed; what follows needs a decision of the operator.
          if (records.length > 0) break;
          throw this.#lostRecords(range, range.from, range.until);
        }
        const read = this.#recordsOf(range, bytesLeft, records.length > 0);
        if (read === undefined) break;
        records = records.concat(read.records);
        for (const { body } of read.records) bytesLeft -= body.byteLength;
        if (!read.isEnd || bytesLeft <= 0) break;
      }
      return { records, next: after(records, position) };
    });
  }

  /** Undefined if there are some already and none can be read after them: the next read reports it. */
  #recordsOf(range: SegmentRange, bytesMax: number, hasSome: boolean): ReturnType<typeof readRecords> | undefined {
    try {
      return readRecords(range, bytesMax);
    } catch (error) {
      if (!(error instanceof LogCorruptError) || error instanceof ForeignSegmentError) throw error;
      if (hasSome) return undefined;
      // None after the last existing one: the segment may be complete, and the next one missing.
      if (!(error instanceof MissingPositionsError) || error.to !== range.until) throw error;
      const end = (findIdentity(range.segment.file)?.lastPosition ?? error.from - 1) + 1;
      throw this.#lostRecords(range, Math.min(end, error.from), error.to);
    }
  }

  async headers(
    _partition: number,
    position: number,
    countMax: number,
  ): Promise<{ headers: LogHeader[]; next: number }> {
    return this.#withListing(position, ({ ranges }) => {
      let headers: LogHeader[] = [];
      for (const range of ranges) {
        if (headers.length >= countMax) break;
        if (isGapMarker(range)) continue;
        headers = headers.concat(
          ifReadable([], () => readHeaders(range, 'TRUE ORDER BY position LIMIT ?', countMax - headers.length)),
        );
      }
      return { headers, next: after(headers, position) };
    });
  }

  async find(_partition: number, position: number, traceId: string): Promise<LogHeader[]> {
    let found: LogHeader[] = [];
    let unreadable: LogCorruptError | undefined;
    for (const range of this.#list(position).ranges) {
      if (isGapMarker(range)) continue;
      try {
        found = found.concat(readHeaders(range, 'trace_id = ? ORDER BY position', traceId));
      } catch (error) {
        if (error instanceof LogCorruptError) unreadable ??= error;
        // It was processed in the meantime, so it has no record at or after the position that a caller would pass now.
        else if (!(error instanceof SegmentGoneError)) throw error;
      }
      // Reading a segment takes a while, and other work of this thread waits.
      await setImmediate();
    }
    // Records found elsewhere are not in the unreadable segment; others may be.
    if (found.length === 0 && unreadable !== undefined) throw unreadable;
    return found;
  }

  async backlogBytes(_partition: number, position: number): Promise<number> {
    return this.#withListing(position, ({ ranges }) => {
      let bytes = 0;
      for (const range of ranges) {
        const { file, firstPosition } = range.segment;
        if (isGapMarker(range)) continue;
        const end = range.until ?? endOfSegment(range);
        if (end > range.from) bytes += (segmentBytes(file) * (end - range.from)) / (end - firstPosition);
      }
      return Math.ceil(bytes);
    });
  }

  /** A damaged segment is skipped: processed records are no longer needed. */
  async traceIdAt(_partition: number, position: number): Promise<string | undefined> {
    try {
      return this.#withListing(position, ({ ranges: [range] }) =>
        range === undefined || isGapMarker(range)
          ? undefined
          : readHeaders(range, 'position = ?', position)[0]?.traceId,
      );
    } catch (error) {
      if (error instanceof LogCorruptError) return undefined;
      throw error;
    }
  }

  async missing(_partition: number, position: number): Promise<number> {
    // Read before the segments: a record is noted there after it is in its segment.
    const acknowledged = findLogEnd(this.#setup.folder);
    return this.#withListing(position, ({ ranges, firstKept, isEndLost }) => {
      let missing = position > 0 && Number.isFinite(firstKept) ? Math.max(0, firstKept - position) : 0;
      let end = firstKept === Number.POSITIVE_INFINITY ? 1 : firstKept;
      for (const range of ranges) {
        const { from, until } = range;
        // A newest segment may grow; of one that cannot be read, the acknowledged end is used.
        const unreadable = until === undefined && acknowledged === 0 ? position - 1 : from;
        const found = isGapMarker(range) ? from : ifReadable(unreadable, () => endOfSegment(range));
        if (until !== undefined) missing += Math.max(0, until - Math.max(found, from));
        end = until ?? found;
      }
      missing += isEndLost ? 0 : Math.max(0, Math.max(position, acknowledged) - end);
      return missing === 0 && isFirstDamaged(ranges[0]) ? 1 : missing;
    });
  }

  async lost(_partition: number, position: number): Promise<LostRange[]> {
    const acknowledged = findLogEnd(this.#setup.folder);
    const segments = listSegments(this.#setup.folder);
    const first = segments[0]?.firstPosition ?? 1;
    const lost: LostRange[] = position === 0 && first > 1 ? [{ from: 1, to: first, records: first - 1 }] : [];
    for (const [index, { state, firstPosition }] of segments.entries()) {
      if (state !== 'lost') continue;
      const from = Math.max(position, firstPosition);
      const end = acknowledged > firstPosition ? acknowledged : from + 1;
      const to = segments[index + 1]?.firstPosition ?? end;
      const isKnown = to - firstPosition < LOST_POSITIONS;
      if (from < to) lost.push({ from, to, records: isKnown ? to - from : 1 });
    }
    return lost;
  }

  /** The newest segment is never removed: it is being written, and its name determines the next position. */
  async commit(_partition: number, position: number): Promise<void> {
    for (const range of this.#list(0).ranges) {
      const { file } = range.segment;
      if (range.until === undefined || range.until > position) return;
      // The marker of missing records stays, like that of a segment that was given up.
      if (isGapMarker(range)) continue;
      // Not sealed yet: a later commit removes it.
      if (hasWal(file)) return;
      if (receivedLast(range) > this.#setup.now() - this.#setup.retentionMs) return;
      // The backup's copy of the store may be older than the position, and then it needs the segment.
      if (isBackupRunning(this.#setup.folder)) return;
      removeSegment(file);
    }
  }

  async newestReceivedAt(): Promise<number> {
    // Every start leaves a segment, which may be empty.
    for (const range of this.#list(0).ranges.toReversed()) {
      try {
        const newest = receivedLast(range);
        if (newest > 0) return newest;
      } catch (error) {
        if (!(error instanceof LogCorruptError) && !(error instanceof LogUnavailableError)) throw error;
      }
    }
    return 0;
  }

  async close(): Promise<void> {}

  #list(position: number): Listing {
    return listRanges(this.#setup.folder, this.#findName(), position);
  }

  /** Calls `use` again, with a new listing, if a segment was removed meanwhile: that one lacks it, or shows the gap. */
  #withListing<T>(position: number, use: (listing: Listing) => T): T {
    for (let listings = 1; ; listings += 1) {
      try {
        return use(this.#list(position));
      } catch (error) {
        if (error instanceof LogCorruptError) this.#assertNoneForeign(position);
        if (!(error instanceof SegmentGoneError) || listings === LISTINGS_MAX) throw error;
      }
    }
  }

  /** A segment inserted between others makes the one before it look truncated. */
  #assertNoneForeign(position: number): void {
    for (const range of this.#list(position).ranges) {
      if (!isGapMarker(range)) assertNotForeign(range.segment, range.logName);
    }
  }

  /** `range` is that of the marker or, before a start has written one, of the segment before the gap. */
  #lostRecords(range: SegmentRange, from: number, until: number | undefined): LogGapError {
    const positions = until === undefined ? `positions ${from}` : positionsText(from, until);
    const isMarked = isGapMarker(range);
    const gap = { position: isMarked ? range.segment.firstPosition : from, isMarked };
    return new LogGapError(
      `The log has lost records that were acknowledged and not processed: ${positions}. ${gapAdvice(this.#setup.folder, gap)}`,
    );
  }

  #removed(position: number, firstKept: number): LogCorruptError {
    const begins = Number.isFinite(firstKept)
      ? `The log begins at position ${firstKept}`
      : 'The log has no segment any more';
    return new LogCorruptError(
      `${begins}, but the store has processed it only up to ${position}: ` +
        'the store is older than what the log still holds, or a segment was moved away. Put the missing segments back. ' +
        `To go on without these records, make an empty file ${segmentFile(this.#setup.folder, position)}.lost.`,
    );
  }
}

/**
 * The newest record of a local log below a position: a store that has processed everything below it must have it
 * (`log/continuity.ts`). Unreadable segments are skipped.
 */
export function newestRecordBefore(folder: string, position: number): ProcessedRecord | undefined {
  for (const range of listRanges(folder, findLogName(folder), 0).ranges.toReversed()) {
    if (isGapMarker(range) || range.segment.firstPosition >= position) continue;
    try {
      const newest = newestBefore(range, Math.min(position, range.until ?? position));
      if (newest !== undefined) return { partition: LOCAL_PARTITION, ...newest };
    } catch (error) {
      if (!(error instanceof LogCorruptError)) throw error;
    }
  }
  return undefined;
}

/** What the segments hold from `position` on, in order, with the markers of missing records. */
function listRanges(folder: string, logName: string | undefined, position: number): Listing {
  const segments = listSegments(folder);
  const startAt = segments.findLastIndex((segment) => segment.firstPosition <= position);
  const isPassed = ({ state }: Segment): boolean => state === 'lost' || state === 'unused';
  const ranges: SegmentRange[] = [];
  for (const [index, segment] of segments.entries()) {
    if (index < startAt || isPassed(segment)) continue;
    const from = Math.max(position, segment.firstPosition);
    ranges.push({ segment, logName, from, until: segments[index + 1]?.firstPosition });
  }
  const newest = segments.at(-1);
  const isEndLost = newest !== undefined && isPassed(newest);
  return { ranges, firstKept: segments[0]?.firstPosition ?? Number.POSITIVE_INFINITY, isEndLost };
}

/** By order of appending; 0 if the segment is empty. */
function receivedLast(range: SegmentRange): number {
  return newestBefore(range)?.receivedAt ?? 0;
}

/** The file only marks missing records. */
function isGapMarker({ segment }: SegmentRange): boolean {
  return segment.state === 'missing';
}

function ifReadable<T>(otherwise: T, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof UnreadableSegmentError) return otherwise;
    throw error;
  }
}

/** Where a processor waits that has reached a damaged record. */
function isFirstDamaged(range: SegmentRange | undefined): boolean {
  if (range === undefined || isGapMarker(range)) return false;
  try {
    readRecords(range, 1);
    return false;
  } catch (error) {
    if (error instanceof LogCorruptError && !(error instanceof ForeignSegmentError)) return true;
    throw error;
  }
}

function after(headers: readonly LogHeader[], position: number): number {
  const last = headers.at(-1);
  return last ? last.position + 1 : position;
}
