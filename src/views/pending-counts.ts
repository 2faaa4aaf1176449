/**
 * What the log holds beyond the position that the store has reached, counted by tenant and minute of receipt. Records
 * never change, so the counts of a full chunk of consecutive records are kept until the store has reached it. A call
 * then reads at most two chunks of known records and whatever is new, however long the backlog is: without that, asking
 * about a backlog would slow down the processor that has to work it off.
 *
 * Limits: a chunk that the store has processed in part, and the last one, are read at every call. Beyond
 * `KEPT_MINUTES_MAX` nothing more is kept, and a call takes time in proportion to what is not.
 */

import type { LogHeader, LogReader } from '../log.ts';
import { MINUTE_MS, type TenantId } from '../model.ts';
import { startOf } from './sums.ts';

/** Accepted users and events, and rejected users, of one tenant and minute of receipt. */
export interface PendingMinute {
  readonly tenantId: TenantId;
  readonly start: number;
  users: number;
  events: number;
  usersRejected: number;
}

interface PendingResult {
  /** Several may be of the same tenant and minute. */
  readonly minutes: readonly PendingMinute[];
  /** The partitions in which positions were missing. */
  readonly gaps: readonly number[];
  /** By partition: the position after the last record. */
  readonly ends: ReadonlyMap<number, number>;
}

const CHUNK_RECORDS = 128;
const HEADERS_PER_READ = 40 * CHUNK_RECORDS;
/** Over all chunks: some 20 MB. A backlog of 25 million records of one tenant has 200,000 chunks. */
const KEPT_MINUTES_MAX = 200_000;

interface Chunk {
  /** The position after the record before its first one. */
  readonly from: number;
  /** The position after its last record. */
  readonly next: number;
  readonly records: number;
  readonly minutes: readonly PendingMinute[];
}

export class PendingCounts {
  readonly #log: LogReader;
  /** By partition: full chunks, each from where the one before ends. */
  readonly #kept = new Map<number, readonly Chunk[]>();

  constructor(log: LogReader) {
    this.#log = log;
  }

  async countFrom(positions: ReadonlyMap<number, number>): Promise<PendingResult> {
    const minutes: PendingMinute[] = [];
    const gaps: number[] = [];
    const ends = new Map<number, number>();
    for (const partition of await this.#log.partitions()) {
      const position = positions.get(partition) ?? 0;
      const chunks = await this.#chunksFrom(partition, position);
      let records = 0;
      for (const chunk of chunks) {
        minutes.push(...chunk.minutes);
        records += chunk.records;
      }
      const end = chunks.at(-1)?.next ?? position;
      if (records !== end - position) gaps.push(partition);
      ends.set(partition, end);
    }
    return { minutes, gaps, ends };
  }

  async #chunksFrom(partition: number, position: number): Promise<readonly Chunk[]> {
    let known = (this.#kept.get(partition) ?? []).filter(({ from }) => from >= position);
    // The store has gone back: what is before them would be read at every call.
    if (known[0] !== undefined && known[0].from - position > HEADERS_PER_READ) known = [];
    const before = await this.#read(partition, position, known[0]?.from ?? position);
    const after = await this.#read(partition, known.at(-1)?.next ?? position, Number.POSITIVE_INFINITY);
    this.#kept.set(partition, known);
    let room = KEPT_MINUTES_MAX - this.#kept.values().reduce((sum, chunks) => sum + minutesIn(chunks), 0);
    const more = after.filter(({ records, minutes }) => {
      room -= minutes.length;
      return records === CHUNK_RECORDS && room >= 0;
    });
    this.#kept.set(partition, [...known, ...more]);
    return [...before, ...known, ...after];
  }

  /** `to` is exclusive. */
  async #read(partition: number, from: number, to: number): Promise<Chunk[]> {
    const chunks: Chunk[] = [];
    let position = from;
    while (position < to) {
      const countMax = Math.min(HEADERS_PER_READ, to - position);
      const read = await this.#log.headers(partition, position, countMax);
      const headers = read.headers.filter((header) => header.position < to);
      for (let at = 0; at < headers.length; at += CHUNK_RECORDS) {
        const chunk = chunkOf(position, headers.slice(at, at + CHUNK_RECORDS));
        chunks.push(chunk);
        position = chunk.next;
      }
      if (headers.length < countMax) break;
    }
    return chunks;
  }
}

function minutesIn(chunks: readonly Chunk[]): number {
  return chunks.reduce((sum, { minutes }) => sum + minutes.length, 0);
}

function chunkOf(from: number, headers: readonly LogHeader[]): Chunk {
  const minutes = new Map<string, PendingMinute>();
  for (const { tenantId, receivedAt, userCount, eventCount, rejections } of headers) {
    const start = startOf(receivedAt, MINUTE_MS);
    const key = `${start} ${tenantId}`;
    const minute = minutes.getOrInsert(key, { tenantId, start, users: 0, events: 0, usersRejected: 0 });
    minute.users += userCount - rejections.length;
    minute.events += eventCount;
    minute.usersRejected += rejections.length;
  }
  const next = (headers.at(-1)?.position ?? from - 1) + 1;
  return { from, next, records: headers.length, minutes: [...minutes.values()] };
}
