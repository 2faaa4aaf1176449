/**
 * The reading half of the embedded event log. It reads all partitions beside the threads that write them, sees only
 * what is durable (SQLite shows a commit to others after its sync), and removes segments once they are processed and
 * older than the retention. How one segment is read, and what is checked, is in `log-segment-reader.ts`.
 *
 * Limits: `find` looks at every record from the position on, so it is meant for what is not processed yet. Several
 * readers may be open at once; one of them may remove a segment that another is about to read, which then reads on
 * behind it.
 */

import type { DatabaseSync } from 'node:sqlite';
import { setImmediate } from 'node:timers/promises';
import {
  type LogBatch,
  LogCorruptError,
  type LogHeader,
  type LogReader,
  type LogRecord,
  LogUnavailableError,
  type LostRange,
} from '../../log.ts';
import { isBackupRunning } from './backup-lock.ts';
import { isOutOfFiles } from './disk.ts';
import { readLogEnd } from './log-ends.ts';
import { findLogName, localLogName } from './log-name.ts';
import { commitPosition, committedPosition, openPositions } from './log-positions.ts';
import { BATCH_BYTES_MAX, type Stretch } from './log-run.ts';
import {
  endOfSegment,
  findHeaders,
  newestReceivedAt,
  readHeaders,
  readRecords,
  SegmentGoneError,
  traceIdAt,
} from './log-segment-reader.ts';
import {
  assertNotForeign,
  hasWal,
  listPartitions,
  listSegments,
  LOST_POSITIONS,
  lostMarkOf,
  partitionFolder,
  removeSegment,
  segmentBytes,
} from './log-segments.ts';

export interface ReaderSetup {
  readonly folder: string;
  readonly retentionMs: number;
  readonly now: () => number;
}

const LISTINGS_MAX = 5;

interface Listing {
  readonly stretches: Stretch[];
  /** The first position that is kept; infinity without any. */
  readonly firstKept: number;
  /** The newest segment was given up: a start is to come that goes on behind it. */
  readonly isEndLost: boolean;
}

export function openSqliteLogReader(setup: ReaderSetup): LogReader {
  return new SqliteLogReader(setup);
}

class SqliteLogReader implements LogReader {
  readonly #setup: ReaderSetup;
  /** Opened when first needed: who only reads records writes nothing, and can read them on a full disk. */
  #positionsOpened: DatabaseSync | undefined;
  #nameFound: string | undefined;

  constructor(setup: ReaderSetup) {
    this.#setup = setup;
  }

  get #positions(): DatabaseSync {
    this.#positionsOpened ??= openPositions(this.#setup.folder);
    return this.#positionsOpened;
  }

  readonly cutsRequests = false;

  get name(): string {
    return localLogName(this.#setup.folder);
  }

  /** Asked for until there is one, and then never again. */
  #findName(): string | undefined {
    this.#nameFound ??= findLogName(this.#setup.folder);
    return this.#nameFound;
  }

  async partitions(): Promise<number[]> {
    return listPartitions(this.#setup.folder);
  }

  async read(partition: number, position: number, bytesMax: number): Promise<LogBatch> {
    return this.#eachListing(partition, position, (stretches, firstKept) => {
      if (position > 0 && firstKept > position) throw this.#removed(partition, position, firstKept);
      let records: LogRecord[] = [];
      let bytesLeft = Math.min(bytesMax, BATCH_BYTES_MAX);
      for (const stretch of stretches) {
        if (stretch.segment.missing) {
          // What comes before it can be processed; behind it only an operator can decide.
          if (records.length > 0) break;
          throw this.#lostItsEnd(stretch);
        }
        const read = readRecords(stretch, bytesLeft);
        records = records.concat(read.records);
        for (const { body } of read.records) bytesLeft -= body.byteLength;
        if (!read.isEnd || bytesLeft <= 0) break;
      }
      return { records, next: after(records, position) };
    });
  }

  async headers(
    partition: number,
    position: number,
    countMax: number,
  ): Promise<{ headers: LogHeader[]; next: number }> {
    return this.#eachListing(partition, position, (stretches) => {
      let headers: LogHeader[] = [];
      for (const stretch of stretches) {
        if (headers.length >= countMax) break;
        if (stretch.segment.missing) continue;
        headers = headers.concat(readHeaders(stretch, countMax - headers.length));
      }
      return { headers, next: after(headers, position) };
    });
  }

  async find(partition: number, position: number, traceId: string): Promise<LogHeader[]> {
    let found: LogHeader[] = [];
    for (const stretch of this.#stretches(partition, position).stretches) {
      if (stretch.segment.missing) continue;
      try {
        found = found.concat(findHeaders(stretch, traceId));
      } catch (error) {
        // It was processed meanwhile: nothing in it is at or after the position that a caller would ask for now.
        if (!(error instanceof SegmentGoneError)) throw error;
      }
      // Looking through a segment takes a while, and others on this thread wait.
      await setImmediate();
    }
    return found;
  }

  async backlogBytes(partition: number, position: number): Promise<number> {
    return this.#eachListing(partition, position, (stretches) => {
      let bytes = 0;
      for (const stretch of stretches) {
        const { file, firstPosition, missing } = stretch.segment;
        if (missing) continue;
        const end = endOfSegment(stretch);
        if (end > stretch.from) bytes += (segmentBytes(file) * (end - stretch.from)) / (end - firstPosition);
      }
      return Math.ceil(bytes);
    });
  }

  /** A damaged segment says nothing: what is processed is not needed any more. */
  async traceIdAt(partition: number, position: number): Promise<string | undefined> {
    try {
      return this.#findTraceId(partition, position);
    } catch (error) {
      if (error instanceof LogCorruptError) return undefined;
      throw error;
    }
  }

  #findTraceId(partition: number, position: number): string | undefined {
    return this.#eachListing(partition, position, ([stretch]) => {
      if (stretch === undefined || stretch.segment.missing || stretch.from !== position) return undefined;
      const isBehind = stretch.until !== undefined && position >= stretch.until;
      return isBehind ? undefined : traceIdAt(stretch);
    });
  }

  async missing(partition: number, position: number): Promise<number> {
    // Before the segments are looked at: a record is noted there after it is in its segment.
    const acknowledged = readLogEnd(this.#setup.folder, partition);
    return this.#eachListing(partition, position, (stretches, firstKept, isEndLost) => {
      let missing = position > 0 && Number.isFinite(firstKept) ? Math.max(0, firstKept - position) : 0;
      let end = firstKept === Number.POSITIVE_INFINITY ? 1 : firstKept;
      for (const stretch of stretches) {
        const isGap = stretch.segment.missing && stretch.until !== undefined;
        if (isGap) missing += Math.max(0, stretch.until - stretch.from);
        end = stretch.segment.missing ? (stretch.until ?? stretch.from) : endOfSegment(stretch);
      }
      return isEndLost ? missing : missing + Math.max(0, Math.max(position, acknowledged) - end);
    });
  }

  async lost(partition: number, position: number): Promise<LostRange[]> {
    const acknowledged = readLogEnd(this.#setup.folder, partition);
    const segments = listSegments(this.#setup.folder, partition);
    const first = segments[0]?.firstPosition ?? 1;
    const ranges = position === 0 && first > 1 ? [{ from: 1, to: first, records: first - 1 }] : [];
    for (const [index, { lost, firstPosition }] of segments.entries()) {
      if (!lost) continue;
      const from = Math.max(position, firstPosition);
      const end = acknowledged > firstPosition ? acknowledged : from + 1;
      const to = segments[index + 1]?.firstPosition ?? end;
      const isKnown = to - firstPosition < LOST_POSITIONS;
      if (from < to) ranges.push({ from, to, records: isKnown ? to - from : 1 });
    }
    return ranges;
  }

  async commit(partition: number, position: number): Promise<void> {
    this.#attempt(() => commitPosition(this.#positions, partition, position));
    this.#removeExpired(partition, position);
  }

  async committed(partition: number): Promise<number> {
    return this.#attempt(() => committedPosition(this.#positions, partition));
  }

  async newestReceivedAt(): Promise<number> {
    let newest = 0;
    for (const partition of await this.partitions()) {
      newest = Math.max(newest, this.#newestIn(partition));
    }
    return newest;
  }

  /** What may go well later is told apart from what is a bug. */
  #attempt<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      if (!isOutOfFiles(error)) throw error;
      throw new LogUnavailableError(`The log's positions cannot be used now: ${(error as Error).message}.`);
    }
  }

  async close(): Promise<void> {
    this.#positionsOpened?.close();
  }

  /** Of the last record; every start leaves a segment, which may be empty. */
  #newestIn(partition: number): number {
    for (const stretch of this.#stretches(partition, 0).stretches.toReversed()) {
      try {
        const newest = newestReceivedAt(stretch);
        if (newest > 0) return newest;
      } catch (error) {
        if (!(error instanceof LogCorruptError) && !(error instanceof LogUnavailableError)) throw error;
      }
    }
    return 0;
  }

  /** Where records from `position` on lie, in order. */
  #stretches(partition: number, position: number): Listing {
    const segments = listSegments(this.#setup.folder, partition);
    const logName = this.#findName();
    const startAt = Math.max(
      0,
      segments.findLastIndex((segment) => segment.firstPosition <= position),
    );
    const stretches: Stretch[] = [];
    for (const [index, segment] of segments.entries()) {
      if (index < startAt || segment.lost || segment.unused) continue;
      const from = Math.max(position, segment.firstPosition);
      stretches.push({ segment, logName, partition, from, until: segments[index + 1]?.firstPosition });
    }
    const newest = segments.at(-1);
    const isEndLost = newest !== undefined && (newest.lost || newest.unused);
    return { stretches, firstKept: segments[0]?.firstPosition ?? Number.POSITIVE_INFINITY, isEndLost };
  }

  /** Lists again when a segment has gone since: then it is not in the list, or the gap that it leaves is noticed. */
  #eachListing<T>(
    partition: number,
    position: number,
    use: (stretches: readonly Stretch[], firstKept: number, isEndLost: boolean) => T,
  ): T {
    for (let listings = 1; ; listings += 1) {
      try {
        const { stretches, firstKept, isEndLost } = this.#stretches(partition, position);
        return use(stretches, firstKept, isEndLost);
      } catch (error) {
        if (error instanceof LogCorruptError) this.#assertNoneForeign(partition, position);
        if (!(error instanceof SegmentGoneError) || listings === LISTINGS_MAX) throw error;
      }
    }
  }

  /** A segment that was put in between others makes the one before it look cut short. */
  #assertNoneForeign(partition: number, position: number): void {
    for (const { segment } of this.#stretches(partition, position).stretches) {
      if (!segment.missing) assertNotForeign(this.#setup.folder, partition, segment);
    }
  }

  /** The newest segment is never removed: it is being written, and its name says where to go on. */
  #removeExpired(partition: number, position: number): void {
    for (const stretch of this.#stretches(partition, 0).stretches) {
      const { file, missing } = stretch.segment;
      if (stretch.until === undefined || stretch.until > position) return;
      // Of what is missing the mark stays, as that of a segment that was given up does.
      if (missing) continue;
      // Not sealed yet: its turn comes with a later commit.
      if (hasWal(file)) return;
      if (newestReceivedAt(stretch) > this.#setup.now() - this.#setup.retentionMs) return;
      // Its copy of the store may be older than the position, and then it needs the segment.
      if (isBackupRunning(this.#setup.folder)) return;
      removeSegment(file);
    }
  }

  #lostItsEnd({ segment, partition, from, until }: Stretch): LogCorruptError {
    const end = until === undefined ? '' : ` to ${until - 1}`;
    return new LogCorruptError(
      `The log has lost records that were acknowledged and not processed: positions ${from}${end} of partition ${partition}. ` +
        `With the server stopped, put the missing files back into ${partitionFolder(this.#setup.folder, partition)}, beside those that are there ` +
        `now, and remove ${segment.file}. To go on without these records, rename it to ${lostMarkOf(this.#setup.folder, partition, segment.firstPosition)}.`,
    );
  }

  #removed(partition: number, position: number, firstKept: number): LogCorruptError {
    return new LogCorruptError(
      `The log begins at position ${firstKept} of partition ${partition}, but the store has processed it only up to ${position}: ` +
        'the store is older than what the log still holds, or a segment was moved away. Put the missing segments back. ' +
        `To go on without these records, make an empty file ${lostMarkOf(this.#setup.folder, partition, position)}.`,
    );
  }
}

function after(headers: readonly LogHeader[], position: number): number {
  const last = headers.at(-1);
  return last ? last.position + 1 : position;
}
