/**
 * The reading half of the embedded event log. It reads all partitions beside the threads that write them, sees only
 * what is durable (SQLite shows a commit to others after its sync), and removes segments once they are processed and
 * older than the retention. How one segment is read, and what is checked, is in `log-segment-reader.ts`.
 *
 * Limits: `find` looks at every record from the position on, so it is meant for what is not processed yet. Several
 * readers may be open at once; one of them may remove a segment that another is about to read, which then reads on
 * behind it.
 */

import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setImmediate } from 'node:timers/promises';
import { type LogBatch, type LogHeader, type LogReader, type LogRecord, LogUnavailableError } from '../../log.ts';
import { isOutOfFiles } from './disk.ts';
import { localLogName } from './log-name.ts';
import { BATCH_BYTES_MAX, type Stretch } from './log-run.ts';
import {
  endOfSegment,
  findHeaders,
  newestReceivedAt,
  readHeaders,
  readRecords,
  SegmentGoneError,
} from './log-segment-reader.ts';
import { hasWal, listPartitions, listSegments, removeSegment, segmentBytes } from './log-segments.ts';

export interface ReaderSetup {
  readonly folder: string;
  readonly retentionMs: number;
  readonly now: () => number;
}

const LISTINGS_MAX = 5;

export function openSqliteLogReader(setup: ReaderSetup): LogReader {
  return new SqliteLogReader(setup);
}

class SqliteLogReader implements LogReader {
  readonly #setup: ReaderSetup;
  /** Opened when first needed: who only reads records writes nothing, and can read them on a full disk. */
  #positionsOpened: DatabaseSync | undefined;

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

  async partitions(): Promise<number[]> {
    return listPartitions(this.#setup.folder);
  }

  async read(partition: number, position: number, bytesMax: number): Promise<LogBatch> {
    return this.#eachListing(partition, position, (stretches) => {
      let records: LogRecord[] = [];
      let bytesLeft = Math.min(bytesMax, BATCH_BYTES_MAX);
      for (const stretch of stretches) {
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
        headers = headers.concat(readHeaders(stretch, countMax - headers.length));
      }
      return { headers, next: after(headers, position) };
    });
  }

  async find(partition: number, position: number, traceId: string): Promise<LogHeader[]> {
    let found: LogHeader[] = [];
    for (const stretch of this.#stretches(partition, position)) {
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
        const { file, firstPosition } = stretch.segment;
        const end = endOfSegment(stretch);
        if (end > stretch.from) bytes += (segmentBytes(file) * (end - stretch.from)) / (end - firstPosition);
      }
      return Math.ceil(bytes);
    });
  }

  async commit(partition: number, position: number): Promise<void> {
    try {
      this.#positions
        .prepare(
          `INSERT INTO positions VALUES (?, ?)
           ON CONFLICT (partition) DO UPDATE SET position = max(position, excluded.position)`,
        )
        .run(partition, position);
    } catch (error) {
      if (!isOutOfFiles(error)) throw error;
      throw new LogUnavailableError(`The log's positions cannot be written now: ${(error as Error).message}.`);
    }
    this.#removeExpired(partition, position);
  }

  async committed(partition: number): Promise<number> {
    const row = this.#positions.prepare('SELECT position FROM positions WHERE partition = ?').get(partition) as
      | { position: number }
      | undefined;
    return row?.position ?? 0;
  }

  async close(): Promise<void> {
    this.#positionsOpened?.close();
  }

  /** Where records from `position` on lie, in order. */
  #stretches(partition: number, position: number): Stretch[] {
    const segments = listSegments(this.#setup.folder, partition);
    const startAt = Math.max(
      0,
      segments.findLastIndex((segment) => segment.firstPosition <= position),
    );
    const stretches: Stretch[] = [];
    for (const [index, segment] of segments.entries()) {
      if (index < startAt || segment.lost) continue;
      const from = Math.max(position, segment.firstPosition);
      stretches.push({ segment, partition, from, until: segments[index + 1]?.firstPosition });
    }
    return stretches;
  }

  /** Lists again when a segment has gone since: then it is not in the list, or the gap that it leaves is noticed. */
  #eachListing<T>(partition: number, position: number, use: (stretches: readonly Stretch[]) => T): T {
    for (let listings = 1; ; listings += 1) {
      try {
        return use(this.#stretches(partition, position));
      } catch (error) {
        if (!(error instanceof SegmentGoneError) || listings === LISTINGS_MAX) throw error;
      }
    }
  }

  /** The newest segment is never removed: it is being written, and its name says where to go on. */
  #removeExpired(partition: number, position: number): void {
    for (const stretch of this.#stretches(partition, 0)) {
      const { file } = stretch.segment;
      if (stretch.until === undefined || stretch.until > position) return;
      // Not sealed yet: its turn comes with a later commit.
      if (hasWal(file)) return;
      if (newestReceivedAt(stretch) > this.#setup.now() - this.#setup.retentionMs) return;
      removeSegment(file);
    }
  }
}

function after(headers: readonly LogHeader[], position: number): number {
  const last = headers.at(-1);
  return last ? last.position + 1 : position;
}

function openPositions(folder: string): DatabaseSync {
  const database = new DatabaseSync(join(folder, 'positions.db'), { timeout: 5_000 });
  try {
    // NORMAL is enough: an older position after a power loss only keeps segments for longer.
    database.exec(`
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = NORMAL;
      CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, position INTEGER NOT NULL) STRICT`);
  } catch (error) {
    // It is tried again later, as often as it takes.
    database.close();
    throw error;
  }
  return database;
}
