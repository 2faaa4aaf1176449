/**
 * What the log holds beyond the position that the store has reached, counted by tenant and minute of receipt. Records
 * never change, so the counts of a full chunk of consecutive positions are kept until the store has passed it. A call
 * then reads at most two chunks of known records and whatever is new, however long the backlog is: without that, asking
 * about a backlog would slow down the processor that has to work it off.
 *
 * Limits: a chunk with a gap, and the last one, are read at every call. Beyond `KEPT_MINUTES_MAX` nothing more is kept,
 * and a call takes time in proportion to what is not.
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

const CHUNK_POSITIONS = 128;
const HEADERS_PER_READ = 5_000;
/** Over all chunks: some 20 MB. A backlog of 25 million records of one tenant has 200,000 chunks. */
const KEPT_MINUTES_MAX = 200_000;

export class PendingCounts {
  readonly #log: LogReader;
  /** By partition, then by first position of the chunk. */
  readonly #kept = new Map<number, Map<number, readonly PendingMinute[]>>();
  #keptMinutes = 0;

  constructor(log: LogReader) {
    this.#log = log;
  }

  async countFrom(positions: ReadonlyMap<number, number>): Promise<PendingResult> {
    const minutes: PendingMinute[] = [];
    const gaps: number[] = [];
    const ends = new Map<number, number>();
    for (const partition of await this.#log.partitions()) {
      const position = positions.get(partition) ?? 0;
      this.#forgetBefore(partition, position);
      const { hasGap, end } = await this.#countPartition(partition, position, minutes);
      if (hasGap) gaps.push(partition);
      ends.set(partition, end);
    }
    return { minutes, gaps, ends };
  }

  async #countPartition(
    partition: number,
    from: number,
    minutes: PendingMinute[],
  ): Promise<{ readonly hasGap: boolean; readonly end: number }> {
    const kept = this.#chunksOf(partition);
    let hasGap = false;
    let position = from;
    let chunk = new Chunk(position);
    const finish = (): void => {
      minutes.push(...chunk.minutes);
      if (chunk.isFull) this.#keep(kept, chunk);
    };
    for (;;) {
      const known = kept.get(position);
      if (known !== undefined) {
        finish();
        minutes.push(...known);
        position += CHUNK_POSITIONS;
        chunk = new Chunk(position);
        continue;
      }
      const end = endOfChunk(position);
      const countMax = kept.has(end) ? end - position : HEADERS_PER_READ;
      const { headers, next } = await this.#log.headers(partition, position, countMax);
      for (const header of headers) {
        if (header.position !== position) hasGap = true;
        position = header.position + 1;
        if (header.position >= chunk.end) {
          finish();
          chunk = new Chunk(header.position);
        }
        chunk.add(header);
      }
      if (headers.length < countMax) break;
      position = next;
    }
    finish();
    return { hasGap, end: position };
  }

  #chunksOf(partition: number): Map<number, readonly PendingMinute[]> {
    return this.#kept.getOrInsertComputed(partition, () => new Map<number, readonly PendingMinute[]>());
  }

  #keep(kept: Map<number, readonly PendingMinute[]>, { first, minutes }: Chunk): void {
    if (kept.has(first) || this.#keptMinutes + minutes.length > KEPT_MINUTES_MAX) return;
    kept.set(first, minutes);
    this.#keptMinutes += minutes.length;
  }

  #forgetBefore(partition: number, position: number): void {
    const kept = this.#chunksOf(partition);
    for (const [first, minutes] of kept) {
      if (first >= position) continue;
      kept.delete(first);
      this.#keptMinutes -= minutes.length;
    }
  }
}

/** Consecutive records up to the next multiple of `CHUNK_POSITIONS`. */
class Chunk {
  readonly first: number;
  /** The position after the last one. */
  readonly end: number;
  #records = 0;
  readonly #minutes = new Map<string, PendingMinute>();

  constructor(first: number) {
    this.first = first;
    this.end = endOfChunk(first);
  }

  /** Whether it begins at a multiple and every position has a record. */
  get isFull(): boolean {
    return this.#records === CHUNK_POSITIONS;
  }

  get minutes(): readonly PendingMinute[] {
    return [...this.#minutes.values()];
  }

  add({ tenantId, receivedAt, userCount, eventCount, rejections }: LogHeader): void {
    const start = startOf(receivedAt, MINUTE_MS);
    const key = `${start} ${tenantId}`;
    const minute = this.#minutes.getOrInsert(key, { tenantId, start, users: 0, events: 0, usersRejected: 0 });
    minute.users += userCount - rejections.length;
    minute.events += eventCount;
    minute.usersRejected += rejections.length;
    this.#records += 1;
  }
}

function endOfChunk(position: number): number {
  return (Math.floor(position / CHUNK_POSITIONS) + 1) * CHUNK_POSITIONS;
}
