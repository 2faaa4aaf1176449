/**
 * Reads messages from Kafka, and the offsets between which there are any. A message is what Kafka holds: a place, a value,
 * a size; `message.ts` makes records of it. What Kafka puts between messages for itself is left out, so positions may have
 * gaps, and `next` says where to go on.
 *
 * `fetchFrom` and `offsetAt` are patient: a leader that moved is found, and only after `READ_MS_MAX` is it told that
 * Kafka cannot be read. Two things no patience helps against, and they are told at once: records that are gone although
 * nobody processed them, and a topic that is not the one it was.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type Connection, deleteRecordsV2, fetchV16, listOffsetsV8, type RecordsBatch } from '@platformatic/kafka';
import { LogCorruptError, LogUnavailableError } from '../../log.ts';
import type { Cluster, ClusterView } from './cluster.ts';
import { answered, CODE, reasonOf, wordsOf } from './codes.ts';

export interface Fetched {
  readonly position: number;
  readonly value: Buffer | null;
  /** What it takes in the log, about. */
  readonly bytes: number;
}

export interface FetchedRun {
  readonly code: number;
  readonly messages: Fetched[];
  /** Where to read on. */
  readonly next: number;
  /** The position after the last message that may be read. */
  readonly end: number;
}

export interface Wanted {
  readonly partition: number;
  /** Of the leader that is asked: a follower would answer too, with less than was acknowledged. */
  readonly epoch: number;
  readonly position: number;
  readonly bytesMax: number;
}

/** What of one partition is to be read, and whether records that are gone may be passed over. */
export interface WantedFrom extends Omit<Wanted, 'epoch'> {
  /**
   * True for who looks at what there is. A processor has to have every record: what is gone between where it stands and
   * the first that is kept was acknowledged, and never processed.
   */
  readonly skipsRemoved: boolean;
}

/** Offsets that Kafka knows by name. */
export const EARLIEST = -2;
export const LATEST = -1;
/** Of the message with the newest time. */
const NEWEST = -3;

export const READ_MS_MAX = 5_000;
const RETRY_MS = 100;
const READ_UNCOMMITTED = 0;
/** Each request stands for itself, without a session that Kafka remembers. */
const NO_SESSION = [0, -1] as const;
const NO_EPOCH = -1;
const IS_CONTROL = 1 << 5;
const MESSAGE_OVERHEAD_BYTES = 24;
const DELETE_MS_MAX = 5_000;
/** Asking again does not help: this user may not, or nobody may in this topic. */
const REFUSALS_TO_REMOVE: ReadonlySet<number> = new Set([
  CODE.topic_authorization_failed,
  CODE.cluster_authorization_failed,
  CODE.policy_violation,
]);

/** From one broker, of one or several partitions that it leads. Waits up to `waitMs` until there is anything at all. */
export async function fetch(
  connection: Connection,
  topicId: string,
  wanted: readonly Wanted[],
  { waitMs, bytesMax }: { readonly waitMs: number; readonly bytesMax: number },
): Promise<Map<number, FetchedRun>> {
  const partitions = wanted.map(({ partition, epoch, position, bytesMax: partitionMaxBytes }) => ({
    partition,
    currentLeaderEpoch: epoch,
    fetchOffset: BigInt(position),
    lastFetchedEpoch: NO_EPOCH,
    partitionMaxBytes,
  }));
  const topics = [{ topicId, partitions }];
  const answer = await answered(
    fetchV16.api.async(connection, waitMs, 1, bytesMax, READ_UNCOMMITTED, ...NO_SESSION, topics, [], ''),
  );
  const runs = new Map<number, FetchedRun>();
  for (const { partitionIndex, errorCode, highWatermark, records } of answer.responses.flatMap(
    (one) => one.partitions,
  )) {
    const from = wanted.find(({ partition }) => partition === partitionIndex)?.position ?? 0;
    const run = messagesIn(records ?? [], from);
    runs.set(partitionIndex, { code: errorCode, end: Number(highWatermark), ...run });
  }
  return runs;
}

function messagesIn(batches: readonly RecordsBatch[], from: number): Pick<FetchedRun, 'messages' | 'next'> {
  const messages: Fetched[] = [];
  let next = from;
  for (const { firstOffset, lastOffsetDelta, attributes, records } of batches) {
    const first = Number(firstOffset);
    next = Math.max(next, first + lastOffsetDelta + 1);
    if ((attributes & IS_CONTROL) !== 0) continue;
    for (const { offsetDelta, key, value } of records) {
      const position = first + offsetDelta;
      // Kafka gives whole batches: what stands before is not asked for.
      if (position < from) continue;
      const bytes = (key?.length ?? 0) + (value?.length ?? 0) + MESSAGE_OVERHEAD_BYTES;
      messages.push({ position, value, bytes });
    }
  }
  return { messages, next };
}

/** What is there at `position` and after; from the first that is kept if that is later. Never waits for more. */
export async function fetchFrom(cluster: Cluster, topicId: string, wanted: WantedFrom): Promise<FetchedRun> {
  const { partition, bytesMax } = wanted;
  let { position } = wanted;
  return patiently(cluster, `partition ${partition} cannot be read`, async () => {
    const limits = { waitMs: 0, bytesMax };
    const { connection, epoch } = await cluster.leader(partition);
    const runs = await fetch(connection, topicId, [{ partition, epoch, position, bytesMax }], limits);
    const run = runs.get(partition);
    if (run?.code === CODE.offset_out_of_range) position = await firstKept(cluster, topicId, { ...wanted, position });
    if (run?.code === CODE.unknown_topic_id) await refuseReplacedTopic(cluster, topicId);
    return run;
  });
}

/** For a position that Kafka does not have: below the first, or above the last. */
async function firstKept(
  cluster: Cluster,
  topicId: string,
  { partition, position, skipsRemoved }: WantedFrom,
): Promise<number> {
  const latest = await offsetAt(cluster, partition, LATEST);
  if (position > latest) {
    throw new LogCorruptError(
      `partition ${partition} of topic ${cluster.topic} ends at position ${latest}, before ${position}, up to where it was read: Kafka lost records`,
    );
  }
  const first = await offsetAt(cluster, partition, EARLIEST);
  // Position 0: nothing was ever read there, by a database that is younger than the topic.
  if (first > position && position > 0 && !skipsRemoved) {
    throw new LogCorruptError(
      `partition ${partition} of topic ${cluster.topic} begins at position ${first}, but is processed only up to ${position}: ` +
        'Kafka removed records that were not processed. Set retention.ms and retention.bytes of the topic to -1, so that ' +
        'this ends. To have those records back, restore the topic. To go on without them, run in the database: ' +
        `UPDATE sluice.positions SET position = ${first} WHERE log = '${nameOfLog(topicId)}' AND partition = ${partition}`,
    );
  }
  return Math.max(position, first);
}

/** What positions in the log are kept under. */
export function nameOfLog(topicId: string): string {
  return `kafka:${topicId}`;
}

/** The topic was deleted, and made again under its name. */
export function isReplaced(view: ClusterView | null, topicId: string): boolean {
  return view !== null && view.topicId !== null && view.topicId !== topicId;
}

export function replacedWords(cluster: Cluster): string {
  return `the topic ${cluster.topic} was deleted and made again: start again to work on the new one`;
}

async function refuseReplacedTopic(cluster: Cluster, topicId: string): Promise<void> {
  if (isReplaced(await cluster.refresh(), topicId)) throw new LogCorruptError(replacedWords(cluster));
}

/**
 * The first position whose message has at least this time (milliseconds since 1970), or one of the offsets that Kafka
 * knows by name. -1 where there is no such message.
 */
export async function offsetAt(cluster: Cluster, partition: number, time: number): Promise<number> {
  return (await messageAt(cluster, partition, time)).offset;
}

/** The newest time of any message in a partition, in milliseconds since 1970; 0 when it is empty. */
export async function newestTime(cluster: Cluster, partition: number): Promise<number> {
  return Math.max(0, (await messageAt(cluster, partition, NEWEST)).time);
}

interface FoundMessage {
  readonly code: number;
  readonly offset: number;
  /** -1 where there is none, and where an offset was asked for by name. */
  readonly time: number;
}

function messageAt(cluster: Cluster, partition: number, time: number): Promise<FoundMessage> {
  return patiently(cluster, `the positions of partition ${partition} cannot be read`, async () => {
    const { connection, epoch } = await cluster.leader(partition);
    const asked = [{ partitionIndex: partition, currentLeaderEpoch: epoch, timestamp: BigInt(time) }];
    const topics = [{ name: cluster.topic, partitions: asked }];
    const answer = await answered(listOffsetsV8.api.async(connection, -1, READ_UNCOMMITTED, topics));
    const found = answer.topics[0]?.partitions[0];
    if (found === undefined) return undefined;
    return { code: found.errorCode, offset: Number(found.offset), time: Number(found.timestamp) };
  });
}

/** Lets Kafka remove what is below. Returns why that is refused whoever asks how often; null when it is done. */
export async function removeBelow(cluster: Cluster, partition: number, position: number): Promise<string | null> {
  const { refusal } = await patiently(cluster, `old records of partition ${partition} cannot be removed`, async () => {
    const partitions = [{ partitionIndex: partition, offset: BigInt(position) }];
    const { connection } = await cluster.leader(partition);
    const answer = await answered(
      deleteRecordsV2.api.async(connection, [{ name: cluster.topic, partitions }], DELETE_MS_MAX),
    );
    const found = answer.topics[0]?.partitions[0];
    if (found === undefined) return undefined;
    const { errorCode } = found;
    if (REFUSALS_TO_REMOVE.has(errorCode)) return { code: CODE.none, refusal: wordsOf(errorCode) };
    // It was removed already, by whoever had the partition before.
    return { code: errorCode === CODE.offset_out_of_range ? CODE.none : errorCode, refusal: null };
  });
  return refusal;
}

/** Tries again, from what the cluster looks like by then, until there is an answer without an error. */
async function patiently<Answer extends { readonly code: number }>(
  cluster: Cluster,
  what: string,
  ask: () => Promise<Answer | undefined>,
): Promise<Answer> {
  const until = performance.now() + READ_MS_MAX;
  let problem = 'Kafka does not answer';
  for (let isFirst = true; isFirst || performance.now() < until; isFirst = false) {
    try {
      const answer = await ask();
      if (answer?.code === CODE.none) return answer;
      if (answer !== undefined) problem = wordsOf(answer.code);
      // Where to read is known by now.
      if (answer?.code === CODE.offset_out_of_range) continue;
    } catch (error) {
      if (error instanceof LogCorruptError) throw error;
      problem = reasonOf(error);
    }
    await sleep(RETRY_MS);
    await cluster.refresh().catch((error: unknown) => {
      problem = reasonOf(error);
    });
  }
  throw new LogUnavailableError(`${what}: ${problem}`);
}
