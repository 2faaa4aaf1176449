/**
 * The reading half of the log, over all partitions, for whoever looks at it: the API, commands, tools. What a fetch brought
 * beyond what was asked for is kept for the next call, of one partition at a time. The processor's reader
 * (`group-reader.ts`) reads ahead instead.
 *
 * Positions are Kafka's offsets. What was processed is the store's to know; the position that is committed here is for
 * people's tools, and to let go of records: those that are processed and older than the retention. Where the processors
 * of other databases read the topic too, those that all of them have processed.
 */

import type { LogBatch, LogHeader, LogReader, LogRecord, LostRange } from '../../log.ts';
import type { Cluster } from './cluster.ts';
import {
  EARLIEST,
  type Fetched,
  fetchFrom,
  type FetchedRun,
  LATEST,
  nameOfLog,
  newestTime,
  offsetAt,
  removeBelow,
} from './fetch.ts';
import { committedPosition, commitPosition, type GroupMembership } from './group-positions.ts';
import { processedByOthers } from './other-groups.ts';
import { headerOf, recordOf, timeOf } from './message.ts';

const FETCH_BYTES = 1024 * 1024;
/** Kafka gives one message at least, however large it is. */
const ONE_MESSAGE_BYTES = 1;
/** Between two removals of old records from a partition. */
const REMOVE_INTERVAL_MS = 60_000;
/** A request may take a while to arrive, and clocks differ. */
const FIND_BEFORE_MS = 60_000;
const FIND_AFTER_MS = 15 * 60_000;
/** Of the messages that the mean size is taken from. */
const SEEN_MAX = 100_000;
const TRACE_ID_WITHIN_BYTES = 512;

export interface ReaderSetup {
  readonly cluster: Cluster;
  readonly topicId: string;
  readonly group: string;
  readonly retentionMs: number;
  readonly now: () => number;
  readonly warn: (message: string) => void;
  /** Whether it goes on where records were removed that nobody may have processed: only who looks may. */
  readonly skipsRemoved: boolean;
}

export class KafkaLogReader implements LogReader {
  readonly name: string;
  readonly cutsRequests = true;
  protected readonly setup: ReaderSetup;
  #rest: { readonly partition: number; readonly from: number; readonly run: FetchedRun } | null = null;
  #seen = { messages: 0, bytes: 0 };
  readonly #committed = new Map<number, number>();
  readonly #removedAt = new Map<number, number>();
  #mayRemove = true;

  constructor(setup: ReaderSetup) {
    this.setup = setup;
    this.name = nameOfLog(setup.topicId);
  }

  async partitions(): Promise<number[]> {
    return [...(await this.setup.cluster.view()).partitions.keys()];
  }

  async read(partition: number, position: number, bytesMax: number): Promise<LogBatch> {
    const run = await this.#from(partition, position);
    const { records, next, count } = recordsOf(run.messages, partition, bytesMax);
    if (records.length === 0) return { records, next: position };
    const isAll = count === run.messages.length;
    if (!isAll) this.#keep(partition, next, { ...run, messages: run.messages.slice(count) });
    return { records, next: isAll ? run.next : next };
  }

  async headers(
    partition: number,
    position: number,
    countMax: number,
  ): Promise<{ headers: LogHeader[]; next: number }> {
    const headers: LogHeader[] = [];
    let next = position;
    while (headers.length < countMax) {
      const run = await this.#from(partition, next);
      if (run.messages.length === 0) break;
      const taken = run.messages.slice(0, countMax - headers.length);
      for (const { position: at, value } of taken) headers.push(headerOf(value, { partition, position: at }));
      const isAll = taken.length === run.messages.length;
      next = isAll ? run.next : (taken.at(-1)?.position ?? next) + 1;
      if (!isAll) this.#keep(partition, next, { ...run, messages: run.messages.slice(taken.length) });
    }
    return { headers, next };
  }

  async find(partition: number, position: number, traceId: string): Promise<LogHeader[]> {
    const { from, until } = await this.#around(partition, position, timeOf(traceId));
    const found: LogHeader[] = [];
    for (let next = from; next < until; ) {
      const run = await this.#fetch(partition, next);
      if (run.messages.length === 0) break;
      for (const { position: at, value } of run.messages) {
        // The trace id comes early in a message; most are not even parsed.
        if (value === null || !value.subarray(0, TRACE_ID_WITHIN_BYTES).includes(traceId)) continue;
        const header = headerOf(value, { partition, position: at });
        if (header.traceId === traceId) found.push(header);
      }
      next = run.next;
    }
    return found;
  }

  async backlogBytes(partition: number, position: number): Promise<number> {
    const end = await this.endOf(partition);
    if (position >= end) return 0;
    // Only who begins may stand before the first that is kept: what is not processed is not removed.
    const start = position > 0 ? position : await offsetAt(this.setup.cluster, partition, EARLIEST);
    const messages = end - start;
    if (messages > 0 && this.#seen.messages === 0) await this.#fetch(partition, start);
    return Math.ceil((messages * this.#seen.bytes) / Math.max(1, this.#seen.messages));
  }

  async traceIdAt(partition: number, position: number): Promise<string | undefined> {
    const { cluster, topicId } = this.setup;
    const wanted = { partition, position, bytesMax: ONE_MESSAGE_BYTES, skipsRemoved: true };
    const { messages } = await fetchFrom(cluster, topicId, wanted);
    const [first] = messages;
    return first?.position === position ? headerOf(first.value, { partition, position }).traceId : undefined;
  }

  async missing(partition: number, position: number): Promise<number> {
    if (position === 0) return 0;
    const { cluster } = this.setup;
    const [first, end] = [await offsetAt(cluster, partition, EARLIEST), await offsetAt(cluster, partition, LATEST)];
    return Math.max(0, first - position) + Math.max(0, position - end);
  }

  /** Offsets have gaps of their own: which records are gone for good cannot be told from them. */
  async lost(): Promise<LostRange[]> {
    return [];
  }

  async commit(partition: number, position: number): Promise<void> {
    const { cluster, group } = this.setup;
    if (position > (await this.#knownCommitted(partition))) {
      await commitPosition(cluster, group, this.membership(), { partition, position });
      this.#committed.set(partition, position);
    }
    await this.#removeOld(partition, position);
  }

  async committed(partition: number): Promise<number> {
    const position = await committedPosition(this.setup.cluster, this.setup.group, partition);
    return Math.max(position, this.#committed.get(partition) ?? 0);
  }

  /** By the times of messages, which are those in their trace ids: a slow request was received up to a minute later. */
  async newestReceivedAt(): Promise<number> {
    const { cluster } = this.setup;
    const partitions = [...(await cluster.view()).partitions.keys()];
    return Math.max(0, ...(await Promise.all(partitions.map((partition) => newestTime(cluster, partition)))));
  }

  close(): Promise<void> {
    return this.setup.cluster.close();
  }

  /** Of the group that positions are committed to. Null: as one who is not in it. */
  protected membership(): GroupMembership | null {
    return null;
  }

  /** The position after the last record. */
  protected endOf(partition: number): Promise<number> {
    return offsetAt(this.setup.cluster, partition, LATEST);
  }

  /** Whoever reads in another way says what he saw: sizes are learnt from it. */
  protected noteSeen(messages: readonly Fetched[]): void {
    const seen = this.#seen;
    for (const { bytes } of messages) seen.bytes += bytes;
    seen.messages += messages.length;
    if (seen.messages > SEEN_MAX) this.#seen = { messages: seen.messages / 2, bytes: seen.bytes / 2 };
  }

  #keep(partition: number, from: number, run: FetchedRun): void {
    this.#rest = { partition, from, run };
  }

  async #from(partition: number, position: number): Promise<FetchedRun> {
    const rest = this.#rest;
    if (rest?.partition === partition && rest.from === position) {
      this.#rest = null;
      return rest.run;
    }
    return this.#fetch(partition, position);
  }

  /** What Kafka has at a position, asked for now. */
  protected fetchAt(partition: number, position: number): Promise<FetchedRun> {
    const { cluster, topicId, skipsRemoved } = this.setup;
    return fetchFrom(cluster, topicId, { partition, position, bytesMax: FETCH_BYTES, skipsRemoved });
  }

  /** Messages, unless the partition is at its end. */
  async #fetch(partition: number, position: number): Promise<FetchedRun> {
    let run = await this.fetchAt(partition, position);
    // Nothing but what Kafka wrote for itself.
    while (run.messages.length === 0 && run.next > position && run.next < run.end) {
      run = await this.fetchAt(partition, run.next);
    }
    this.noteSeen(run.messages);
    return run;
  }

  /** Where a request can be that has this time in its trace id. */
  async #around(
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

  async #removeOld(partition: number, position: number): Promise<void> {
    const { cluster, group, retentionMs, now, warn } = this.setup;
    if (!this.#mayRemove) return;
    const oldest = now() - retentionMs;
    const moment = performance.now();
    if (oldest <= 0 || moment - (this.#removedAt.get(partition) ?? Number.NEGATIVE_INFINITY) < REMOVE_INTERVAL_MS) {
      return;
    }
    this.#removedAt.set(partition, moment);
    const firstYoung = await offsetAt(cluster, partition, oldest);
    const old = firstYoung < 0 ? position : Math.min(position, firstYoung);
    const earliest = await offsetAt(cluster, partition, EARLIEST);
    if (old <= earliest) return;
    const below = Math.min(old, await processedByOthers(cluster, group, partition));
    if (below <= earliest) return;
    const refusal = await removeBelow(cluster, partition, below);
    if (refusal === null) return;
    this.#mayRemove = false;
    warn(
      `topic ${cluster.topic}: old records are not removed, so that it grows without end: ${refusal}. Allow this user Delete on the topic (and let its cleanup.policy be delete), then start again`,
    );
  }
}

/**
 * As many as fit, but one at least. `count`: how many messages were used. Those before a message that is no record are
 * given without it, so that only what is wrong stays behind.
 */
export function recordsOf(
  messages: readonly Fetched[],
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
