/**
 * The reading half of the log, over all partitions, for the API and commands. The processor's reader
 * (`group-reader.ts`) has those that the group assigned to it.
 *
 * Positions are Kafka's offsets. The store knows what is processed; the offset that is committed here is for lag tools,
 * and for deleting old records: those that are older than the retention and processed, by all databases that read the
 * topic.
 */

import type { LogBatch, LogHeader, LogReader, LogRecord, LostRange } from '../../log.ts';
import { MINUTE_MS } from '../../model.ts';
import { timeOfUuid7 } from '../../views/uuid.ts';
import type { Cluster } from './cluster.ts';
import {
  EARLIEST,
  type FetchedMessage,
  fetchFrom,
  type FetchResult,
  type LeaderFetchResult,
  LATEST,
  nameOfLog,
  newestTime,
  offsetAt,
  deleteRecordsBefore,
  readAgainStatement,
} from './fetch.ts';
import {
  committedOffset,
  commitOffset,
  type GroupMembership,
  groupPrefix,
  processedByOtherGroups,
  seesAllGroups,
} from './group-offsets.ts';
import { headerOf, recordOf } from './message.ts';

const FETCH_BYTES = 1024 * 1024;
/** Kafka returns one message at least, however large it is. */
const ONE_MESSAGE_BYTES = 1;
/** Between two deletions of old records from a partition. */
const DELETE_INTERVAL_MS = 60_000;
/** Requests take time to arrive, and clocks differ. */
const FIND_BEFORE_MS = 60_000;
const FIND_AFTER_MS = 15 * MINUTE_MS;
/** Size of the sample for the mean message size. */
const SAMPLE_MESSAGES_MAX = 100_000;
const TRACE_ID_WITHIN_BYTES = 512;

export interface ReaderSetup {
  readonly cluster: Cluster;
  readonly topicId: string;
  readonly group: string;
  readonly retentionMs: number;
  readonly now: () => number;
  readonly warn: (message: string) => void;
  /** Whether to continue after records that were deleted and perhaps not processed: not for processors. */
  readonly skipsRemoved: boolean;
}

export class KafkaLogReader implements LogReader {
  readonly name: string;
  readonly splitsRequests = true;
  protected readonly setup: ReaderSetup;
  #sample = { messages: 0, bytes: 0 };
  readonly #committed = new Map<number, number>();
  readonly #deletedAt = new Map<number, number>();
  #mayDelete = true;

  constructor(setup: ReaderSetup) {
    this.setup = setup;
    this.name = nameOfLog(setup.topicId);
  }

  /** Asked for each time: partitions may be added while this runs, and what waits in them counts. */
  async partitions(): Promise<number[]> {
    return [...(await this.setup.cluster.refresh()).partitions.keys()];
  }

  /** By partition: the first position that is kept, where that is not 0. For a database that is new to the topic. */
  async beginnings(): Promise<Map<number, number>> {
    const found = new Map<number, number>();
    for (const partition of (await this.setup.cluster.metadata()).partitions.keys()) {
      const { from } = await this.#fetchOne(partition, await offsetAt(this.setup.cluster, partition, EARLIEST));
      if (from > 0) found.set(partition, from);
    }
    return found;
  }

  async read(partition: number, position: number, bytesMax: number): Promise<LogBatch> {
    const result = await this.fetchMessages(partition, position);
    const { records, next, count } = recordsOf(result.messages, partition, bytesMax);
    if (records.length === 0) return { records, next: position };
    return { records, next: count === result.messages.length ? result.next : next };
  }

  async headers(
    partition: number,
    position: number,
    countMax: number,
  ): Promise<{ headers: LogHeader[]; next: number }> {
    const headers: LogHeader[] = [];
    let next = position;
    while (headers.length < countMax) {
      const result = await this.fetchMessages(partition, next);
      if (result.messages.length === 0) break;
      const used = result.messages.slice(0, countMax - headers.length);
      for (const { position: at, value } of used) headers.push(headerOf(value, { partition, position: at }));
      next = used.length === result.messages.length ? result.next : (used.at(-1)?.position ?? next) + 1;
    }
    return { headers, next };
  }

  async find(partition: number, position: number, traceId: string): Promise<LogHeader[]> {
    const { from, until } = await this.#searchRange(partition, position, timeOfUuid7(traceId));
    const found: LogHeader[] = [];
    for (let next = from; next < until; ) {
      const result = await this.fetchMessages(partition, next);
      if (result.messages.length === 0) break;
      for (const { position: at, value } of result.messages) {
        // The trace id is near the start of a message, so most messages are not parsed.
        if (value === null || !value.subarray(0, TRACE_ID_WITHIN_BYTES).includes(traceId)) continue;
        const header = headerOf(value, { partition, position: at });
        if (header.traceId === traceId) found.push(header);
      }
      next = result.next;
    }
    return found;
  }

  async backlogBytes(partition: number, position: number): Promise<number> {
    const end = await offsetAt(this.setup.cluster, partition, LATEST);
    if (position >= end) return 0;
    // Only position 0 can be before the first message: unprocessed records are not deleted.
    const start = position > 0 ? position : await offsetAt(this.setup.cluster, partition, EARLIEST);
    const messages = end - start;
    if (messages > 0 && this.#sample.messages === 0) await this.fetchMessages(partition, start);
    return Math.ceil((messages * this.#sample.bytes) / Math.max(1, this.#sample.messages));
  }

  async traceIdAt(partition: number, position: number): Promise<string | undefined> {
    const [first] = (await this.#fetchOne(partition, position)).messages;
    return first?.position === position ? headerOf(first.value, { partition, position }).traceId : undefined;
  }

  async missing(partition: number, position: number): Promise<number> {
    const { cluster } = this.setup;
    const [first, end] = [await offsetAt(cluster, partition, EARLIEST), await offsetAt(cluster, partition, LATEST)];
    if (position < first || position >= end) return Math.max(first - position, position - end);
    return (await this.#fetchOne(partition, position)).from - position;
  }

  readAgainStatement(partition: number): Promise<string> {
    return readAgainStatement(this.setup.cluster, this.setup.topicId, partition);
  }

  /** None: a processor waits for those that are missing, until an operator moves its position past them. */
  async lost(): Promise<LostRange[]> {
    return [];
  }

  /** `from` is `position`, or the first after it that was not removed. */
  #fetchOne(partition: number, position: number): Promise<FetchResult> {
    const { cluster, topicId } = this.setup;
    return fetchFrom(cluster, topicId, { partition, position, bytesMax: ONE_MESSAGE_BYTES, skipsRemoved: true });
  }

  async commit(partition: number, position: number): Promise<void> {
    const { cluster, group } = this.setup;
    // Also if it is ahead: moved by hand, or the database was restored. Other databases' processors would delete too much.
    if (position !== (await this.#knownCommitted(partition))) {
      await commitOffset(cluster, group, this.membership(), { partition, offset: position });
      this.#committed.set(partition, position);
    }
    await this.#deleteOld(partition, position);
  }

  /** 0 before the first commit. */
  committed(partition: number): Promise<number> {
    return committedOffset(this.setup.cluster, this.setup.group, partition);
  }

  /** By the time in trace ids, which may be up to a minute before a slow request was received. */
  async newestReceivedAt(): Promise<number> {
    const { cluster } = this.setup;
    const partitions = [...(await cluster.metadata()).partitions.keys()];
    return Math.max(0, ...(await Promise.all(partitions.map((partition) => newestTime(cluster, partition)))));
  }

  close(): Promise<void> {
    return this.setup.cluster.close();
  }

  /** Null: not a member of the group. */
  protected membership(): GroupMembership | null {
    return null;
  }

  /** For the mean message size. */
  #sampleSizes(messages: readonly FetchedMessage[]): void {
    const seen = this.#sample;
    for (const { bytes } of messages) seen.bytes += bytes;
    seen.messages += messages.length;
    if (seen.messages > SAMPLE_MESSAGES_MAX) this.#sample = { messages: seen.messages / 2, bytes: seen.bytes / 2 };
  }

  /** Empty only at the end of the partition. */
  protected async fetchMessages(
    partition: number,
    position: number,
    bytesMax = FETCH_BYTES,
  ): Promise<LeaderFetchResult> {
    const { cluster, topicId, skipsRemoved } = this.setup;
    const request = { partition, bytesMax, skipsRemoved };
    let result = await fetchFrom(cluster, topicId, { ...request, position });
    // Only control records so far.
    while (result.messages.length === 0 && result.next > position && result.next < result.end) {
      result = await fetchFrom(cluster, topicId, { ...request, position: result.next });
    }
    this.#sampleSizes(result.messages);
    return result;
  }

  /** The range of positions for a request with this time in its trace id. */
  async #searchRange(
    partition: number,
    position: number,
    time: number | undefined,
  ): Promise<{ readonly from: number; readonly until: number }> {
    const { cluster } = this.setup;
    if (time === undefined) return { from: position, until: Number.POSITIVE_INFINITY };
    const from = await offsetAt(cluster, partition, Math.max(0, time - FIND_BEFORE_MS));
    if (from < 0) return { from: position, until: position };
    const until = await offsetAt(cluster, partition, time + FIND_AFTER_MS);
    return { from: Math.max(position, from), until: until < 0 ? Number.POSITIVE_INFINITY : until };
  }

  async #knownCommitted(partition: number): Promise<number> {
    const known = this.#committed.get(partition) ?? (await this.committed(partition));
    this.#committed.set(partition, known);
    return known;
  }

  async #deleteOld(partition: number, position: number): Promise<void> {
    const { cluster, group, retentionMs, now } = this.setup;
    if (!this.#mayDelete) return;
    const oldest = now() - retentionMs;
    const moment = performance.now();
    if (oldest <= 0 || moment - (this.#deletedAt.get(partition) ?? Number.NEGATIVE_INFINITY) < DELETE_INTERVAL_MS) {
      return;
    }
    this.#deletedAt.set(partition, moment);
    // Before anything is old enough, so that an operator learns of it at the start.
    if (!(await seesAllGroups(cluster))) {
      const right = `Describe on all consumer groups that begin with ${groupPrefix(cluster.topic)}`;
      this.#stopDeleting('this user may not see whether other databases still need them', right);
      return;
    }
    const firstYoung = await offsetAt(cluster, partition, oldest);
    const old = firstYoung < 0 ? position : Math.min(position, firstYoung);
    const earliest = await offsetAt(cluster, partition, EARLIEST);
    if (old <= earliest) return;
    const below = Math.min(old, await processedByOtherGroups(cluster, group, partition));
    if (below <= earliest) return;
    const reason = await deleteRecordsBefore(cluster, partition, below);
    if (reason !== null) this.#stopDeleting(reason, 'Delete on the topic (and set its cleanup.policy to delete)');
  }

  /** With a warning; until the next start. */
  #stopDeleting(reason: string, right: string): void {
    const { cluster, warn } = this.setup;
    this.#mayDelete = false;
    warn(
      `topic ${cluster.topic}: old records cannot be deleted, so it grows forever: ${reason}. Allow this user ${right}, then restart`,
    );
  }
}

/**
 * As many records as fit, but one at least. `count`: how many messages were used. Records before a damaged message are
 * returned without it, so that only the damaged one blocks.
 */
export function recordsOf(
  messages: readonly FetchedMessage[],
  partition: number,
  bytesMax: number,
): { readonly records: LogRecord[]; readonly next: number; readonly count: number } {
  const records: LogRecord[] = [];
  let bytes = 0;
  let next = 0;
  for (const { position, value } of messages) {
    const size = value?.length ?? 0;
    if (records.length > 0 && bytes + size > bytesMax) break;
    try {
      records.push(recordOf(value, { partition, position }));
    } catch (error) {
      if (records.length === 0) throw error;
      break;
    }
    bytes += size;
    next = position + 1;
  }
  return { records, next, count: records.length };
}
