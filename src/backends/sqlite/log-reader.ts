/**
 * The reading half of the embedded event log. It reads all partitions beside the threads that write them, sees only
 * what is durable (SQLite shows a commit to others after its sync), checks every record's checksum and that no position
 * is missing, and removes segments once they are processed and older than the retention.
 */

import { statSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type LogBatch, LogCorruptError, type LogReader, type LogRecord, LogUnavailableError } from '../../log.ts';
import type { KeyKind, Rejection } from '../../model.ts';
import { isOutOfFiles } from './disk.ts';
import {
  hasWal,
  listPartitions,
  listSegments,
  openSegmentForReading,
  PAGE_BYTES,
  type RecordRow,
  recordChecksum,
  removeSegment,
  type Segment,
} from './log-segments.ts';

export interface ReaderSetup {
  readonly folder: string;
  readonly retentionMs: number;
  readonly now: () => number;
}

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

  async partitions(): Promise<number[]> {
    return listPartitions(this.#setup.folder);
  }

  async read(partition: number, position: number, bytesMax: number): Promise<LogBatch> {
    const segments = listSegments(this.#setup.folder, partition);
    const startAt = Math.max(
      0,
      segments.findLastIndex((segment) => segment.firstPosition <= position),
    );
    const batch: Batch = { records: [], bytes: 0, bytesMax };
    for (let index = startAt; index < segments.length && batch.bytes < bytesMax; index += 1) {
      const segment = segments[index] as Segment;
      if (segment.lost) continue;
      const from = Math.max(position, segment.firstPosition);
      readSegment({ segment, partition, from, until: segments[index + 1]?.firstPosition }, batch);
    }
    const last = batch.records.at(-1);
    return { records: batch.records, next: last ? last.position + 1 : position };
  }

  async commit(partition: number, position: number): Promise<void> {
    this.#positions
      .prepare(
        `INSERT INTO positions VALUES (?, ?)
         ON CONFLICT (partition) DO UPDATE SET position = max(position, excluded.position)`,
      )
      .run(partition, position);
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

  /** The newest segment is never removed: it is being written, and its name says where to go on. */
  #removeExpired(partition: number, position: number): void {
    const segments = listSegments(this.#setup.folder, partition);
    for (const [index, segment] of segments.entries()) {
      const next = segments[index + 1];
      if (!next || next.firstPosition > position) return;
      if (segment.lost) continue;
      // Not sealed yet: its turn comes with a later commit.
      if (hasWal(segment.file)) return;
      if (newestReceivedAt(segment.file) > this.#setup.now() - this.#setup.retentionMs) return;
      removeSegment(segment.file);
    }
  }
}

function openPositions(folder: string): DatabaseSync {
  const database = new DatabaseSync(join(folder, 'positions.db'), { timeout: 5_000 });
  // NORMAL is enough: an older position after a power loss only keeps segments for longer.
  database.exec(`
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, position INTEGER NOT NULL) STRICT`);
  return database;
}

interface Batch {
  readonly records: LogRecord[];
  readonly bytesMax: number;
  bytes: number;
}

interface Stretch {
  readonly segment: Segment;
  readonly partition: number;
  readonly from: number;
  /** Where the next segment begins; undefined for the newest segment, which may still grow. */
  readonly until: number | undefined;
}

function readSegment(stretch: Stretch, batch: Batch): void {
  const { file } = stretch.segment;
  const hadWal = hasWal(file);
  try {
    readRows(stretch, batch);
  } catch (error) {
    if (error instanceof LogCorruptError) throw error;
    const { message } = error as Error;
    if (isOutOfFiles(error)) throw new LogUnavailableError(`The log segment ${file} cannot be read now: ${message}.`);
    // The writer is just making the newest one: the file is there before its WAL, and its WAL before its table.
    const isNewest = stretch.until === undefined;
    if (isNewest && !hadWal && hasWal(file)) readSegment(stretch, batch);
    else if (!(isNewest && statSync(file).size <= PAGE_BYTES && /no such table: records/.test(message))) {
      throw new LogCorruptError(`The log segment ${file} cannot be read: ${message}.`);
    }
  }
}

function readRows({ segment, partition, from, until }: Stretch, batch: Batch): void {
  const database = openSegmentForReading(segment.file);
  try {
    let expected = from;
    const rows = database.prepare('SELECT * FROM records WHERE position >= ? ORDER BY position').iterate(from);
    for (const row of rows) {
      const record = toRecord(row as unknown as RecordRow, partition, segment.file);
      if (record.position !== expected) throw missing(segment.file, expected, record.position);
      expected += 1;
      batch.records.push(record);
      batch.bytes += record.body.byteLength;
      if (batch.bytes >= batch.bytesMax) return;
    }
    if (until !== undefined && expected !== until) throw missing(segment.file, expected, until);
  } finally {
    database.close();
  }
}

function missing(file: string, from: number, to: number): LogCorruptError {
  return new LogCorruptError(`The log segment ${file} is damaged: it has no position ${from}, where ${to} is next.`);
}

function toRecord(row: RecordRow, partition: number, file: string): LogRecord {
  // A flipped bit can also turn the bytes of a body into a text of the same bytes.
  if (!(row.body instanceof Uint8Array) || recordChecksum(row) !== row.checksum) {
    throw new LogCorruptError(`The record at position ${row.position} of the log segment ${file} is damaged.`);
  }
  return {
    partition,
    position: row.position,
    firstUserIndex: 0,
    traceId: row.trace_id,
    tenantId: row.tenant_id,
    receivedAt: row.received_at,
    keyId: row.key_id,
    keyKind: row.key_kind as KeyKind,
    idempotencyKey: row.idempotency_key,
    body: row.body,
    userCount: row.user_count,
    rejections: row.rejections === null ? [] : (JSON.parse(row.rejections) as Rejection[]),
  };
}

function newestReceivedAt(file: string): number {
  const database = openSegmentForReading(file);
  try {
    const row = database.prepare('SELECT received_at FROM records ORDER BY position DESC LIMIT 1').get() as
      | { received_at: number }
      | undefined;
    return row?.received_at ?? 0;
  } finally {
    database.close();
  }
}
