/**
 * The processor's reader: a member of the consumer group that shares the partitions of the topic. It fetches when it is
 * read, and keeps what one fetch returned beyond what was asked for. `waitForMore` is a long poll for all partitions
 * whose end was read, which only says that there is more.
 *
 * What is kept of a revoked partition is dropped immediately. Unless a fetch continues the one before it, over the same
 * connection and from the same leader epoch, the record before it must be the one that the processor says
 * (`lastTraceId`): while a broker is down, its files may be put back from an older copy, and the positions used again. If
 * the topic is deleted and created again, the reader fails: it is a different log, in which the old positions mean nothing.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { LogBatch } from '../../log.ts';
import { assertContinues } from '../../log/continuity.ts';
import type { Cluster } from './cluster.ts';
import { CODE } from './errors.ts';
import { fetch, isReplaced, type LeaderFetchResult, replacedMessage } from './fetch.ts';
import type { GroupMembership } from './group-offsets.ts';
import { Membership } from './membership.ts';
import { KafkaLogReader, type ReaderSetup, recordsOf } from './reader.ts';

/** In one fetch of a partition; a smaller one often ends within a batch of the processor, which is then small too. */
const FETCH_BYTES = 1024 * 1024;
/** What is kept of all partitions together, about: Kafka returns at least one batch of messages, whatever its size. */
const KEPT_BYTES_MAX = 16 * 1024 * 1024;
/** How long a long poll waits. */
const POLL_MS = 500;
/** `waitForMore` resolves after this even if a broker does not respond to one. */
const WAIT_MS_MAX = 1_000;
/** Kafka returns the batch that ends the wait, whatever its size. */
const POLL_BYTES = 1;

/** Retrying does not help; after a restart the new topic is used. */
class TopicReplacedError extends Error {
  override readonly name = 'TopicReplacedError';
}

/** What was fetched and not read yet. Reading continues at `position`, where `messages` start. */
interface Fetched extends Pick<LeaderFetchResult, 'messages' | 'next' | 'leader'> {
  readonly position: number;
}

export class KafkaGroupReader extends KafkaLogReader {
  readonly #membership: Membership;
  /** Only for long polls, which block its connections. */
  readonly #pollCluster: Cluster;
  #assigned: ReadonlySet<number> = new Set();
  readonly #fetched = new Map<number, Fetched>();
  /** By partition: its end, where it was read since the last `waitForMore`. */
  #ends = new Map<number, number>();
  /** By broker. */
  readonly #polls = new Map<number, Promise<void>>();

  constructor(setup: ReaderSetup, pollCluster: Cluster) {
    super(setup);
    const { cluster, topicId, group } = setup;
    this.#pollCluster = pollCluster;
    const onChange = (partitions: ReadonlySet<number>): void => {
      this.#assigned = partitions;
      for (const partition of this.#fetched.keys()) if (!partitions.has(partition)) this.#fetched.delete(partition);
    };
    this.#membership = new Membership({ cluster, topicId, group, onChange });
  }

  join(): Promise<void> {
    return this.#membership.join();
  }

  override async partitions(): Promise<number[]> {
    const { cluster, topicId } = this.setup;
    if (isReplaced(cluster.cachedMetadata, topicId)) throw new TopicReplacedError(replacedMessage(cluster));
    return this.#membership.partitions();
  }

  override async read(partition: number, position: number, bytesMax: number, lastTraceId?: string): Promise<LogBatch> {
    const kept = this.#fetched.get(partition);
    const isKept = kept?.position === position && kept.messages.length > 0;
    const fetched = isKept ? kept : await this.#fetch(partition, position, lastTraceId);
    const { records, next, count } = recordsOf(fetched.messages, partition, bytesMax);
    if (count === 0) {
      this.#ends.set(partition, fetched.next);
      return { records, next: position };
    }
    const messages = fetched.messages.slice(count);
    const end = messages.length === 0 ? fetched.next : next;
    this.#keep(partition, { ...fetched, position: end, messages });
    return { records, next: end };
  }

  /** Resolves when a partition whose end was read has more, and after WAIT_MS_MAX at the latest. */
  async waitForMore(): Promise<void> {
    const ends = [...this.#ends];
    this.#ends = new Map();
    const { partitions } = await this.setup.cluster.metadata();
    const byLeader = Map.groupBy(ends, ([partition]) => partitions[partition]?.leader ?? -1);
    // One that is left from an earlier call ends soon.
    const polls = [...byLeader].map(([leader, led]) =>
      this.#polls.getOrInsertComputed(leader, () => this.#poll(leader, led).finally(() => this.#polls.delete(leader))),
    );
    await Promise.race([...polls, sleep(WAIT_MS_MAX)]);
  }

  override async close(): Promise<void> {
    await this.#membership.close();
    await this.#pollCluster.close();
    await super.close();
  }

  protected override membership(): GroupMembership {
    return this.#membership.current;
  }

  async #fetch(partition: number, position: number, lastTraceId: string | undefined): Promise<Fetched> {
    const before = this.#fetched.get(partition);
    this.#fetched.delete(partition);
    const bytesMax = Math.min(FETCH_BYTES, Math.floor(KEPT_BYTES_MAX / Math.max(1, this.#assigned.size)));
    const { messages, next, leader } = await this.fetchMessages(partition, position, bytesMax);
    const isContinued =
      before?.position === position &&
      before.leader.connection === leader.connection &&
      before.leader.epoch === leader.epoch;
    // After the fetch, which may have waited for a broker to be back.
    if (!isContinued) await assertContinues(this, partition, position, lastTraceId);
    const fetched = { position, messages, next, leader };
    this.#keep(partition, fetched);
    return fetched;
  }

  #keep(partition: number, fetched: Fetched): void {
    if (this.#assigned.has(partition)) this.#fetched.set(partition, fetched);
  }

  /** Never rejects, and takes its time if something is wrong: reading reports it. */
  async #poll(leader: number, ends: readonly (readonly [partition: number, position: number])[]): Promise<void> {
    const { cluster, topicId } = this.setup;
    const requests = ends.map(([partition, position]) => {
      const epoch = cluster.cachedMetadata?.partitions[partition]?.epoch ?? -1;
      return { partition, epoch, position, bytesMax: POLL_BYTES };
    });
    try {
      const connection = await this.#pollCluster.connection(leader);
      const limits = { waitMs: POLL_MS, bytesMax: POLL_BYTES };
      const results = await fetch(connection, topicId, requests, limits);
      if (results.values().every(({ code }) => code === CODE.none)) return;
    } catch {
      // As if it had waited.
    }
    await sleep(POLL_MS);
  }
}
