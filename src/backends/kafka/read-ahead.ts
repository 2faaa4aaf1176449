/**
 * Reads ahead of the processor, so that it does not wait for Kafka between batches. For each broker there is one request
 * under way, for all partitions that it leads and that have room; Kafka answers as soon as there is something, or after
 * a moment. Memory is bounded: `AHEAD_BYTES_MAX` for all partitions together, give or take a fetch.
 *
 * A partition is read ahead from where `put` said that its reader stands. Messages are taken in order and exactly from
 * that position on; whoever reads elsewhere says so by another `put`.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster } from './cluster.ts';
import { CODE } from './codes.ts';
import { type Fetched, fetch, type FetchedRun } from './fetch.ts';

const AHEAD_BYTES_MAX = 16 * 1024 * 1024;
const PARTITION_BYTES_MIN = 128 * 1024;
const RESPONSE_BYTES_MAX = 8 * 1024 * 1024;
/** How long Kafka waits for something to come; a partition that needs reading again waits as long at most. */
const WAIT_MS = 500;
/** While a partition that has enough may need more at any time. */
const SHORT_WAIT_MS = 20;
const RETRY_MS = 200;

interface Ahead {
  /** Where its reader stands, and the messages from there on. */
  from: number;
  messages: Fetched[];
  bytes: number;
  /** Where to fetch on. */
  next: number;
  /** A request for what comes next is under way. */
  isAsked: boolean;
}

export class ReadAhead {
  readonly #cluster: Cluster;
  readonly #topicId: string;
  readonly #onSeen: (partition: number, run: FetchedRun) => void;
  #partitions = new Map<number, Ahead>();
  readonly #brokers = new Set<number>();
  readonly #arrivals: (() => void)[] = [];
  #isClosed = false;

  /** The cluster is for this alone: its connections are kept busy by waiting. */
  constructor(cluster: Cluster, topicId: string, onSeen: (partition: number, run: FetchedRun) => void) {
    this.#cluster = cluster;
    this.#topicId = topicId;
    this.#onSeen = onSeen;
  }

  /** Messages from `position` on; none if there are none yet; undefined if that is not known here. */
  peek(partition: number, position: number): readonly Fetched[] | undefined {
    const ahead = this.#partitions.get(partition);
    if (ahead?.from !== position) return undefined;
    return ahead.messages.length > 0 || ahead.isAsked ? ahead.messages : undefined;
  }

  /** The first so many of what was seen are used; returns where the reader stands now. */
  use(partition: number, count: number): number {
    const ahead = this.#partitions.get(partition);
    if (ahead === undefined) throw new Error(`partition ${partition} is not read ahead`);
    const used = ahead.messages.splice(0, count);
    for (const { bytes } of used) ahead.bytes -= bytes;
    ahead.from = ahead.messages.length === 0 ? ahead.next : (used.at(-1)?.position ?? ahead.from - 1) + 1;
    this.#nudge();
    return ahead.from;
  }

  /** What somebody fetched at `position` by himself: it is read on from there. */
  put(partition: number, position: number, { messages, next }: Pick<FetchedRun, 'messages' | 'next'>): void {
    const known = this.#partitions.get(partition);
    // It came in the meantime.
    if (known?.from === position && known.messages.length > 0) return;
    const bytes = messages.reduce((sum, message) => sum + message.bytes, 0);
    this.#partitions.set(partition, { from: position, messages: [...messages], bytes, next, isAsked: false });
    this.#nudge();
  }

  /** Drops what was read of all other partitions. */
  keepOnly(partitions: ReadonlySet<number>): void {
    for (const partition of this.#partitions.keys()) {
      if (!partitions.has(partition)) this.#partitions.delete(partition);
    }
    this.#announce();
  }

  /** Resolves when something is there to read, or has changed; after so long anyway. */
  async arrival(msMax: number): Promise<void> {
    if (this.#partitions.values().some(({ messages }) => messages.length > 0)) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, msMax);
    this.#arrivals.push(resolve);
    await promise;
    clearTimeout(timer);
    const at = this.#arrivals.indexOf(resolve);
    if (at >= 0) this.#arrivals.splice(at, 1);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#partitions.clear();
    this.#announce();
    await this.#cluster.close();
  }

  #announce(): void {
    for (const resolve of this.#arrivals.splice(0)) resolve();
  }

  /** Has every broker asked for what there is room for. */
  #nudge(): void {
    for (const partition of this.#partitions.keys()) {
      const leader = this.#leaderOf(partition);
      if (this.#brokers.has(leader)) continue;
      if (leader < 0) void this.#cluster.refresh().catch(() => undefined);
      else void this.#read(leader);
    }
  }

  #leaderOf(partition: number): number {
    return this.#cluster.known?.partitions[partition]?.leader ?? -1;
  }

  /** Until there is nothing to ask this broker for. */
  async #read(broker: number): Promise<void> {
    this.#brokers.add(broker);
    while (!this.#isClosed) {
      const led = [...this.#partitions].filter(([partition]) => this.#leaderOf(partition) === broker);
      const wanted = led.filter(([, { bytes }]) => bytes < this.#partitionBytesMax() / 2);
      if (wanted.length === 0) break;
      try {
        await this.#ask(broker, wanted, wanted.length === led.length ? WAIT_MS : SHORT_WAIT_MS);
      } catch {
        // Whoever reads finds nothing here, asks by himself and is told what is wrong.
        for (const [, ahead] of wanted) ahead.isAsked = false;
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

  async #ask(broker: number, wanted: readonly [number, Ahead][], waitMs: number): Promise<void> {
    const bytesMax = this.#partitionBytesMax();
    const asked = wanted.map(([partition, ahead]) => {
      ahead.isAsked = true;
      const epoch = this.#cluster.known?.partitions[partition]?.epoch ?? -1;
      return { partition, epoch, position: ahead.next, bytesMax };
    });
    const connection = await this.#cluster.connection(broker);
    const limits = { waitMs, bytesMax: RESPONSE_BYTES_MAX };
    const runs = await fetch(connection, this.#topicId, asked, limits);
    let isStale = false;
    for (const [partition, ahead] of wanted) {
      ahead.isAsked = false;
      const run = runs.get(partition);
      if (this.#partitions.get(partition) !== ahead || run === undefined) continue;
      if (run.code === CODE.none) this.#take(partition, ahead, run);
      // Somebody reads it by himself then, and says from where to go on.
      else this.#partitions.delete(partition);
      isStale ||= run.code !== CODE.none && run.code !== CODE.offset_out_of_range;
    }
    if (isStale) await this.#cluster.refresh();
  }

  #take(partition: number, ahead: Ahead, run: FetchedRun): void {
    this.#onSeen(partition, run);
    for (const message of run.messages) {
      ahead.messages.push(message);
      ahead.bytes += message.bytes;
    }
    ahead.next = run.next;
    if (run.messages.length > 0) this.#announce();
  }
}
