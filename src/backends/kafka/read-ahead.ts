/**
 * Fetches ahead of the processor, so that it does not wait for Kafka between batches. One fetch is in flight to each
 * broker, for all partitions that it leads and whose buffers have room (a long poll). Memory is bounded:
 * `AHEAD_BYTES_MAX` for all partitions together, plus one response for each broker.
 *
 * The buffer of a partition starts where `put` says. Messages are consumed in order, exactly from that position on; a
 * reader that moves to another position calls `put` again. A buffer is filled over one connection, from one leader epoch.
 * After a lost connection or a change of leader the partition may have lost records and reused their positions, so the
 * buffer is not continued: the reader starts another, and first makes sure that the partition continues.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection } from '@platformatic/kafka';
import type { Cluster } from './cluster.ts';
import { CODE } from './errors.ts';
import { type FetchedMessage, fetch, type FetchRequest, type FetchResult } from './fetch.ts';

const AHEAD_BYTES_MAX = 16 * 1024 * 1024;
const PARTITION_BYTES_MIN = 128 * 1024;
const RESPONSE_BYTES_MAX = 8 * 1024 * 1024;
/** How long a long poll waits, and so at most a partition that gets room meanwhile. */
const WAIT_MS = 500;
/** While the buffer of another partition is full, and may get room at any time. */
const SHORT_WAIT_MS = 20;
const RETRY_MS = 200;

interface PartitionBuffer {
  /** The reader's position; `messages` start there. */
  from: number;
  messages: FetchedMessage[];
  bytes: number;
  next: number;
  isFetching: boolean;
  /** What it is filled from; null before the first fetch. */
  source: { readonly connection: Connection; readonly epoch: number } | null;
}

export class ReadAhead {
  readonly #cluster: Cluster;
  readonly #topicId: string;
  readonly #onFetched: (messages: readonly FetchedMessage[]) => void;
  #partitions = new Map<number, PartitionBuffer>();
  readonly #brokers = new Set<number>();
  readonly #waiters: (() => void)[] = [];
  #isClosed = false;

  /** The cluster must be used for nothing else: long polls block its connections. */
  constructor(cluster: Cluster, topicId: string, onFetched: (messages: readonly FetchedMessage[]) => void) {
    this.#cluster = cluster;
    this.#topicId = topicId;
    this.#onFetched = onFetched;
  }

  /** Messages from `position` on; empty if there are none yet; undefined if the buffer does not start there. */
  peek(partition: number, position: number): readonly FetchedMessage[] | undefined {
    const ahead = this.#partitions.get(partition);
    if (ahead?.from !== position) return undefined;
    return ahead.messages.length > 0 || ahead.isFetching ? ahead.messages : undefined;
  }

  /** Removes the first messages of the buffer; returns the reader's new position. */
  consume(partition: number, count: number): number {
    const ahead = this.#partitions.get(partition);
    if (ahead === undefined) throw new Error(`partition ${partition} is not read ahead`);
    const used = ahead.messages.splice(0, count);
    for (const { bytes } of used) ahead.bytes -= bytes;
    ahead.from = ahead.messages.length === 0 ? ahead.next : (used.at(-1)?.position ?? ahead.from - 1) + 1;
    this.#startFetching();
    return ahead.from;
  }

  /** Starts the buffer at `position`, with messages that the reader fetched there itself. */
  put(partition: number, position: number, { messages, next }: Pick<FetchResult, 'messages' | 'next'>): void {
    const known = this.#partitions.get(partition);
    // They were fetched meanwhile.
    if (known?.from === position && known.messages.length > 0) return;
    const bytes = messages.reduce((sum, message) => sum + message.bytes, 0);
    const buffer = { from: position, messages: [...messages], bytes, next, isFetching: false, source: null };
    this.#partitions.set(partition, buffer);
    this.#startFetching();
  }

  retain(partitions: ReadonlySet<number>): void {
    for (const partition of this.#partitions.keys()) {
      if (!partitions.has(partition)) this.#partitions.delete(partition);
    }
    this.#notify();
  }

  /** Resolves when there are messages or the partitions have changed, and after `msMax` at the latest. */
  async waitForMessages(msMax: number): Promise<void> {
    if (this.#partitions.values().some(({ messages }) => messages.length > 0)) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, msMax);
    this.#waiters.push(resolve);
    await promise;
    clearTimeout(timer);
    const at = this.#waiters.indexOf(resolve);
    if (at >= 0) this.#waiters.splice(at, 1);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#partitions.clear();
    this.#notify();
    await this.#cluster.close();
  }

  #notify(): void {
    for (const resolve of this.#waiters.splice(0)) resolve();
  }

  /** Starts a fetch loop for each broker that leads a partition and has none. */
  #startFetching(): void {
    for (const partition of this.#partitions.keys()) {
      const leader = this.#leaderOf(partition);
      if (this.#brokers.has(leader)) continue;
      if (leader < 0) void this.#cluster.refresh().catch(() => undefined);
      else void this.#read(leader);
    }
  }

  #leaderOf(partition: number): number {
    return this.#cluster.cachedMetadata?.partitions[partition]?.leader ?? -1;
  }

  /** Until all buffers of this broker's partitions are full. */
  async #read(broker: number): Promise<void> {
    this.#brokers.add(broker);
    while (!this.#isClosed) {
      const led = [...this.#partitions].filter(([partition]) => this.#leaderOf(partition) === broker);
      // A new buffer is always fetched once, even if it is full, to record its connection and epoch.
      const wanted = led.filter(([, { bytes, source }]) => bytes < this.#partitionBytesMax() / 2 || source === null);
      if (wanted.length === 0) break;
      try {
        await this.#fetch(broker, wanted, wanted.length === led.length ? WAIT_MS : SHORT_WAIT_MS);
      } catch {
        // The reader finds no buffer, fetches by itself and gets the error.
        for (const [partition, ahead] of wanted) this.#drop(partition, ahead);
        if (this.#isClosed) break;
        await sleep(RETRY_MS);
        await this.#cluster.refresh().catch(() => undefined);
      }
    }
    this.#brokers.delete(broker);
  }

  #partitionBytesMax(): number {
    return Math.max(PARTITION_BYTES_MIN, Math.floor(AHEAD_BYTES_MAX / Math.max(1, this.#partitions.size)));
  }

  async #fetch(broker: number, wanted: readonly [number, PartitionBuffer][], waitMs: number): Promise<void> {
    const bytesMax = this.#partitionBytesMax();
    for (const [, ahead] of wanted) ahead.isFetching = true;
    const connection = await this.#cluster.connection(broker);
    const requests: FetchRequest[] = [];
    for (const [partition, ahead] of wanted) {
      const epoch = this.#cluster.cachedMetadata?.partitions[partition]?.epoch ?? -1;
      ahead.source ??= { connection, epoch };
      const isSame = ahead.source.connection === connection && ahead.source.epoch === epoch;
      if (isSame) requests.push({ partition, epoch, position: ahead.next, bytesMax });
      else this.#drop(partition, ahead);
    }
    if (requests.length === 0) return;
    const limits = { waitMs, bytesMax: RESPONSE_BYTES_MAX };
    const results = await fetch(connection, this.#topicId, requests, limits);
    let isStale = false;
    for (const [partition, ahead] of wanted) {
      ahead.isFetching = false;
      const result = results.get(partition);
      if (this.#partitions.get(partition) !== ahead || result === undefined) continue;
      const isUsable = result.code === CODE.none && (result.gap === null || result.messages.length > 0);
      if (isUsable) this.#append(ahead, result);
      // The reader fetches by itself then, gets the error if there is one, and calls `put` again.
      else this.#drop(partition, ahead);
      isStale ||= result.code !== CODE.none && result.code !== CODE.offset_out_of_range;
    }
    if (isStale) await this.#cluster.refresh();
  }

  #drop(partition: number, ahead: PartitionBuffer): void {
    if (this.#partitions.get(partition) === ahead) this.#partitions.delete(partition);
  }

  #append(ahead: PartitionBuffer, result: FetchResult): void {
    this.#onFetched(result.messages);
    for (const message of result.messages) {
      ahead.messages.push(message);
      ahead.bytes += message.bytes;
    }
    ahead.next = result.next;
    if (result.messages.length > 0) this.#notify();
  }
}
