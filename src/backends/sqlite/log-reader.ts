/**
 * The reading half of the embedded event log. It reads all partitions beside the threads that write them, sees only
 * what is durable (SQLite shows a commit to others after its sync), checks every record's checksum, and removes
 * segments once they are processed and older than the retention.
 */

import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type LogBatch, LogCorruptError, type LogReader, type LogRecord } from '../../log.ts';
import type { KeyKind, Rejection } from '../../model.ts';
import {
  listPartitions,
  listSegments,
  openSegmentForReading,
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
  readonly #positions: DatabaseSync;

  constructor(setup: ReaderSetup) {
    this.#setup = setup;
    this.#positions = new DatabaseSync(join(setup.folder, 'positions.db'), { timeout: 5_000 });
    // NORMAL is enough: an older position after a power loss only keeps segments for longer.
    this.#positions.exec(`
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = NORMAL;
      CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, position INTEGER NOT NULL) STRICT`);
  }

  partitions(): Promise<number[]> {
    return Promise.resolve(listPartitions(this.#setup.folder));
  }

  read(partition: number, position: number, bytesMax: number): Promise<LogBatch> {
    const segments = listSegments(this.#setup.folder, partition);
    const startAt = Math.max(
      0,
      segments.findLastIndex((segment) => segment.firstPosition <= position),
    );
    const records: LogRecord[] = [];
    let bytes = 0;
    for (const segment of segments.slice(startAt)) {
      bytes = readSegment(segment, partition, position, bytes, bytesMax, records);
      if (bytes >= bytesMax) break;
    }
    const last = records.at(-1);
    return Promise.resolve({ records, next: last ? last.position + 1 : position });
  }

  commit(partition: number, position: number): Promise<void> {
    this.#positions
      .prepare(
        `INSERT INTO positions VALUES (?, ?)
         ON CONFLICT (partition) DO UPDATE SET position = max(position, excluded.position)`,
      )
      .run(partition, position);
    this.#removeExpired(partition, position);
    return Promise.resolve();
  }

  committed(partition: number): Promise<number> {
    const row = this.#positions.prepare('SELECT position FROM positions WHERE partition = ?').get(partition) as
      | { position: number }
      | undefined;
    return Promise.resolve(row?.position ?? 0);
  }

  close(): Promise<void> {
    this.#positions.close();
    return Promise.resolve();
  }

  /** The newest segment is never removed: it is being written, and its name says where to go on. */
  #removeExpired(partition: number, position: number): void {
    const segments = listSegments(this.#setup.folder, partition);
    for (const [index, segment] of segments.entries()) {
      const next = segments[index + 1];
      if (!next || next.firstPosition > position) return;
      if (newestReceivedAt(segment.file) > this.#setup.now() - this.#setup.retentionMs) return;
      removeSegment(segment.file);
    }
  }
}

function readSegment(
  segment: Segment,
  partition: number,
  position: number,
  bytesBefore: number,
  bytesMax: number,
  into: LogRecord[],
): number {
  let bytes = bytesBefore;
  try {
    const database = openSegmentForReading(segment.file);
    try {
      const rows = database.prepare('SELECT * FROM records WHERE position >= ? ORDER BY position').iterate(position);
      for (const row of rows) {
        const record = toRecord(row as unknown as RecordRow, partition, segment.file);
        into.push(record);
        bytes += record.body.byteLength;
        if (bytes >= bytesMax) break;
      }
    } finally {
      database.close();
    }
  } catch (error) {
    if (error instanceof LogCorruptError) throw error;
    throw new LogCorruptError(`The log segment ${segment.file} cannot be read: ${(error as Error).message}.`);
  }
  return bytes;
}

function toRecord(row: RecordRow, partition: number, file: string): LogRecord {
  if (recordChecksum(row) !== row.checksum) {
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
