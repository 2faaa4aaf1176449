/**
 * The reading half of the embedded event log. It reads while another thread writes; for the processor, of the newest
 * segment only what is durable, up to where `log-ends` says. It compresses segments once they are processed, and removes
 * them once they are older than the retention. `./segment-reader.ts` reads and checks one segment.
 *
 * Limits: `find` reads every record from the position on, so it is meant for records that are not processed yet.
 * Several readers may be open at once; one of them may remove a segment that another is about to read, which then
 * continues after it.
 */

import { statSync } from 'node:fs';
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
import { messageOf } from '../../../errors.ts';
import { sizeOfFile } from '../../../data-folder/files.ts';
import { positionsText } from '../../../log/continuity.ts';
import { isBackupRunning } from '../folder-lock.ts';
import { findDurableEnd } from './ends.ts';
import { findLogName, localLogName } from './name.ts';
import { outdatedMarkers } from './recovery.ts';
import {
  BATCH_BYTES_MAX,
  endOfSegment,
  isGapMarker,
  MissingPositionsError,
  newestBefore,
  rangesOf,
  readHeaders,
  readRecords,
  SegmentCache,
  SegmentGoneError,
  type SegmentRange,
  UnreadableSegmentError,
} from './segment-reader.ts';
import {
  compressSegment,
  findOwnHeader,
  gapAdvice,
  listSegments,
  LOST_POSITIONS,
  removeSegment,
  type Segment,
  segmentFile,
} from './segments.ts';

interface ReaderSetup {
  readonly folder: string;
  /** Without it, nothing is removed. */
  readonly retentionMs?: number;
  /** The time that retention goes by. */
  readonly now?: () => number;
  /**
   * For the processor, while the writer appends: of the newest segment only what is durable is read, and segments are
   * compressed once processed. `receiptTime` is the clock of `received_at`.
   */
  readonly consumer?: { readonly receiptTime: () => number };
}

const LISTINGS_MAX = 5;
/** What was just processed may still be looked up in the log, and a compressed segment is decompressed whole for that. */
const COMPRESS_AFTER_MS = 10_000;
/** After one that failed: the disk may be full. */
const COMPRESS_RETRY_MS = 600_000;

/** The segments of the folder at one moment, from a position on. */
interface Listing {
  readonly ranges: SegmentRange[];
  /** The first position that is kept; infinity without any. */
  readonly firstKept: number;
  /** The newest segment was given up: the next start continues after it. */
  readonly isEndLost: boolean;
}

export function openEmbeddedLogReader(setup: ReaderSetup): LogReader {
  return new EmbeddedLogReader(setup);
}

class EmbeddedLogReader implements LogReader {
  readonly #setup: ReaderSetup;
  #nameFound: string | undefined;
  /** It has had segments: the newest is never removed. */
  #isUsed = false;
  readonly #cache = new SegmentCache();
  /** Markers that do not count: files whose records the log has again. As of the first read, like the start of a server. */
  #outdatedMarkers: ReadonlySet<string> | undefined;
  #compressing: Promise<void> | undefined;
  #compressNotBefore = 0;
  #isClosing = false;

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
    this.#isUsed ||= this.#segments().length > 0;
    return this.#isUsed ? [LOCAL_PARTITION] : [];
  }

  async read(_partition: number, position: number, bytesMax: number): Promise<LogBatch> {
    return this.#withListing(position, ({ ranges, firstKept }) => {
      if (position > 0 && firstKept > position) throw this.#removedError(position, firstKept);
      let records: LogRecord[] = [];
      let bytesLeft = Math.min(bytesMax, BATCH_BYTES_MAX);
      for (const range of ranges) {
        if (isGapMarker(range)) {
          // The records before it can be processed; what follows needs a decision of the operator.
          if (records.length > 0) break;
          throw this.#missingRecordsError(range, range.from, range.until);
        }
        const read = this.#recordsOf(range, bytesLeft, records.length > 0);
        if (read === undefined) break;
        records = records.concat(read.records);
        for (const { body } of read.records) bytesLeft -= body.byteLength;
        if (!read.isEnd || bytesLeft <= 0) break;
      }
      return { records, next: positionAfter(records, position) };
    });
  }

  /** Undefined if there are some already and none can be read after them: the next read reports it. */
  #recordsOf(range: SegmentRange, bytesMax: number, hasSome: boolean): ReturnType<typeof readRecords> | undefined {
    try {
      return readRecords(range, bytesMax, this.#cache);
    } catch (error) {
      if (!(error instanceof LogCorruptError) || error instanceof ForeignSegmentError) throw error;
      if (hasSome) return undefined;
      // None after the last existing one: the segment may be complete, and the next one missing.
      if (!(error instanceof MissingPositionsError) || error.to !== range.until) throw error;
      throw this.#missingRecordsError(range, Math.min(endOfSegment(range, this.#cache), error.from), error.to);
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
          ifReadable([], () => readHeaders(range, this.#cache, { countMax: countMax - headers.length }).headers),
        );
      }
      return { headers, next: positionAfter(headers, position) };
    });
  }

  async find(_partition: number, position: number, traceId: string): Promise<LogHeader[]> {
    let found: LogHeader[] = [];
    let unreadable: LogCorruptError | undefined;
    for (const range of this.#list(position).ranges) {
      if (isGapMarker(range)) {
        unreadable ??= this.#missingRecordsError(range, range.from, range.until);
        continue;
      }
      try {
        const { headers, problem } = readHeaders(range, this.#cache, { traceId });
        found = found.concat(headers);
        unreadable ??= problem;
      } catch (error) {
        if (error instanceof LogCorruptError) unreadable ??= error;
        // It was processed in the meantime, so it has no record at or after the position that a caller would pass now.
        else if (!(error instanceof SegmentGoneError)) throw error;
      }
      // Reading a segment takes a while, and other work of this thread waits.
      await setImmediate();
    }
    // Records found elsewhere are not among those that cannot be read; others may be.
    if (found.length === 0 && unreadable !== undefined) throw unreadable;
    return found;
  }

  async backlogBytes(_partition: number, position: number): Promise<number> {
    return this.#withListing(position, ({ ranges }) => {
      let bytes = 0;
      for (const range of ranges) {
        const { segment } = range;
        if (isGapMarker(range)) continue;
        const end = range.until ?? endOfSegment(range, this.#cache);
        if (end > range.from) bytes += (sizeOfFile(segment.file) * (end - range.from)) / (end - segment.firstPosition);
      }
      return Math.ceil(bytes);
    });
  }

  /** A damaged segment is skipped: processed records are no longer needed. */
  async traceIdAt(_partition: number, position: number): Promise<string | undefined> {
    try {
      return this.#withListing(position, ({ ranges: [range] }) =>
        range === undefined || isGapMarker(range) || range.from !== position
          ? undefined
          : readHeaders(range, this.#cache, { countMax: 1 }).headers[0]?.traceId,
      );
    } catch (error) {
      if (error instanceof LogCorruptError) return undefined;
      throw error;
    }
  }

  async missing(_partition: number, position: number): Promise<number> {
    // Read before the segments: a record is noted there after it is in its segment.
    const acknowledged = findDurableEnd(this.#setup.folder)?.position ?? 0;
    return this.#withListing(position, ({ ranges, firstKept, isEndLost }) => {
      const atStart = position > 0 && Number.isFinite(firstKept) ? Math.max(0, firstKept - position) : 0;
      let between = 0;
      let end = Number.isFinite(firstKept) ? firstKept : 1;
      for (const range of ranges) {
        // Without log-ends, a newest segment that cannot be read counts as one missing record.
        const whenUnreadable = range.until === undefined && acknowledged === 0 ? position - 1 : range.from;
        end = isGapMarker(range) ? range.from : ifReadable(whenUnreadable, () => endOfSegment(range, this.#cache));
        if (range.until === undefined) continue;
        between += Math.max(0, range.until - Math.max(end, range.from));
        end = range.until;
      }
      const atEnd = isEndLost ? 0 : Math.max(0, Math.max(position, acknowledged) - end);
      const missing = atStart + between + atEnd;
      return missing === 0 ? this.#damagedRecords(ranges[0]) : missing;
    });
  }

  async lost(_partition: number, position: number): Promise<LostRange[]> {
    const acknowledged = findDurableEnd(this.#setup.folder)?.position ?? 0;
    const segments = this.#segments();
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

  /**
   * The newest segment is never removed: it is being written, and its name determines the next position. Nor is it
   * compressed.
   */
  async commit(_partition: number, position: number): Promise<void> {
    const { retentionMs = Number.POSITIVE_INFINITY, now = Date.now } = this.#setup;
    const processed = this.#list(0).ranges.filter(({ until }) => until !== undefined && until <= position);
    // The marker of missing records stays, like that of a segment that was given up.
    const segments = processed.filter((range) => !isGapMarker(range));
    while (segments[0] !== undefined && this.#newestReceivedAt(segments[0]) <= now() - retentionMs) {
      // The backup's copy of the store may be older than the position, and then it needs the segment.
      if (isBackupRunning(this.#setup.folder)) return;
      try {
        removeSegment(segments[0].segment.file);
      } catch (error) {
        // Retried with the next commit.
        throw new LogUnavailableError(
          `The log segment ${segments[0].segment.file} cannot be removed: ${messageOf(error)}.`,
        );
      }
      segments.shift();
    }
    this.#compressing ??= this.#compress(segments).finally(() => {
      this.#compressing = undefined;
    });
  }

  /** In the background, one after the other. Those that are not done now are done after a later commit. */
  async #compress(processed: readonly SegmentRange[]): Promise<void> {
    const { consumer, folder } = this.#setup;
    if (consumer === undefined || performance.now() < this.#compressNotBefore) return;
    for (const range of processed) {
      if (range.segment.isCompressed) continue;
      try {
        const newestReceivedAt = this.#newestReceivedAt(range);
        if (newestReceivedAt > consumer.receiptTime() - COMPRESS_AFTER_MS) return;
        if (this.#isClosing || isBackupRunning(folder)) return;
        await compressSegment(range.segment, newestReceivedAt);
      } catch {
        // The segment is as it was.
        this.#compressNotBefore = performance.now() + COMPRESS_RETRY_MS;
        return;
      }
    }
  }

  #newestReceivedAt(range: SegmentRange): number {
    // Compression sets it to that time. A copy may have a later one; an empty or damaged segment is kept that long, too.
    const changedAt = statSync(range.segment.file).mtimeMs;
    if (range.segment.isCompressed) return changedAt;
    try {
      return newestBefore(range, this.#cache)?.receivedAt ?? changedAt;
    } catch (error) {
      if (error instanceof LogCorruptError || error instanceof LogUnavailableError) return changedAt;
      throw error;
    }
  }

  async newestReceivedAt(): Promise<number> {
    // Every start leaves a segment, which may be empty.
    for (const range of this.#list(0).ranges.toReversed()) {
      try {
        const newest = newestBefore(range, this.#cache)?.receivedAt;
        if (newest !== undefined) return newest;
      } catch (error) {
        if (!(error instanceof LogCorruptError) && !(error instanceof LogUnavailableError)) throw error;
      }
    }
    return 0;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    await this.#compressing;
  }

  /** How many records cannot be read from the first one on, where a processor would stop: 1, or all of the segment. */
  #damagedRecords(range: SegmentRange | undefined): number {
    if (range === undefined || isGapMarker(range)) return 0;
    try {
      readRecords(range, 1, this.#cache);
      return 0;
    } catch (error) {
      if (error instanceof UnreadableSegmentError) return (range.until ?? range.from + 1) - range.from;
      if (error instanceof LogCorruptError && !(error instanceof ForeignSegmentError)) return 1;
      throw error;
    }
  }

  #list(position: number): Listing {
    const { folder, consumer } = this.#setup;
    // Read before the segments: a record is noted there after it is in its segment.
    const durable = findDurableEnd(folder);
    const log = { logName: this.#findName(), durable, isDurableOnly: consumer !== undefined };
    const segments = this.#segments();
    return {
      ranges: rangesOf(segments, log, position),
      firstKept: segments[0]?.firstPosition ?? Number.POSITIVE_INFINITY,
      isEndLost: segments.at(-1)?.state === 'lost',
    };
  }

  #segments(): Segment[] {
    const { folder } = this.#setup;
    const outdated = (this.#outdatedMarkers ??= new Set(outdatedMarkers(folder).map(({ marker }) => marker.file)));
    return listSegments(folder).filter(({ file }) => !outdated.has(file));
  }

  /** If a segment is removed meanwhile, calls `use` again with a new listing, which is without it or shows the gap. */
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
      if (!isGapMarker(range)) findOwnHeader(range.segment, range.logName);
    }
  }

  /** `range` is that of the marker or, before a start has written one, of the segment before the gap. */
  #missingRecordsError(range: SegmentRange, from: number, until: number | undefined): LogGapError {
    const positions = until === undefined ? `positions ${from}` : positionsText(from, until);
    const isMarked = isGapMarker(range);
    const gap = { position: isMarked ? range.segment.firstPosition : from, isMarked };
    return new LogGapError(
      `The log has lost records that were acknowledged and not processed: ${positions}. ${gapAdvice(this.#setup.folder, gap)}`,
    );
  }

  #removedError(position: number, firstKept: number): LogCorruptError {
    const begins = Number.isFinite(firstKept)
      ? `The log begins at position ${firstKept}`
      : 'The log has no segment any more';
    return new LogCorruptError(
      `${begins}, but the store has processed it only up to ${position - 1}: ` +
        'the store is older than what the log still holds, or a segment was moved away. Put the missing segments back. ' +
        `Only if they are gone for good, make an empty file ${segmentFile(this.#setup.folder, position)}.lost: processing ` +
        'continues without them.',
    );
  }
}

function ifReadable<T>(otherwise: T, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof UnreadableSegmentError) return otherwise;
    throw error;
  }
}

function positionAfter(headers: readonly LogHeader[], position: number): number {
  const last = headers.at(-1);
  return last ? last.position + 1 : position;
}
