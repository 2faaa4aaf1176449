/**
 * Fetches messages and offsets from Kafka. `message.ts` turns messages into log records. Kafka's control records are left
 * out, so `next` is where to continue. Any other position without a message is one that Kafka removed.
 *
 * `fetchFrom` and `offsetAt` retry for `READ_MS_MAX`, for example while a leader moves. Three errors are permanent
 * and thrown immediately: records were removed before they were processed, the topic was replaced by another one, and this
 * user may not read it.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type Connection, deleteRecordsV2, fetchV16, listOffsetsV8, type RecordsBatch } from '@platformatic/kafka';
import { LogCorruptError, LogForbiddenError, LogUnavailableError } from '../../log.ts';
import { positionsText } from '../../log/continuity.ts';
import type { Cluster, ClusterMetadata, Leader } from './cluster.ts';
import { responseOf, CODE, errorText, describeCode } from './errors.ts';
import { MESSAGE_OVERHEAD_BYTES } from './message.ts';

export interface FetchedMessage {
  readonly position: number;
  readonly value: Buffer | null;
  /** Approximate size in the log. */
  readonly bytes: number;
}

export interface FetchResult {
  readonly code: number;
  /** Where Kafka was read from: after the requested position if that does not exist. */
  readonly from: number;
  readonly messages: FetchedMessage[];
  readonly next: number;
  /** What was removed at that position, before the next record that exists; compaction leaves such gaps. */
  readonly gap: Gap | null;
  /** The high watermark: the position after the last message. */
  readonly end: number;
}

export interface LeaderFetchResult extends FetchResult {
  readonly leader: Leader;
}

/** Positions, `from` inclusive, `to` exclusive. */
interface Gap {
  readonly from: number;
  readonly to: number;
}

interface FetchRequest {
  readonly partition: number;
  /** Epoch of the leader: a follower would respond too, with less than was acknowledged. */
  readonly epoch: number;
  readonly position: number;
  readonly bytesMax: number;
}

interface FetchFromRequest extends Omit<FetchRequest, 'epoch'> {
  /**
   * True for readers that only look. A processor needs every record: those between its position and the first that still
   * exists were acknowledged and never processed.
   */
  readonly skipsRemoved: boolean;
}

/** Special timestamps of ListOffsets. */
export const EARLIEST = -2;
export const LATEST = -1;
/** The message with the newest timestamp. */
const NEWEST = -3;

const READ_MS_MAX = 5_000;
const RETRY_MS = 100;
const READ_UNCOMMITTED = 0;
/** No incremental fetch session: each request is complete. */
const NO_SESSION = [0, -1] as const;
const NO_EPOCH = -1;
const IS_CONTROL = 1 << 5;
const DELETE_MS_MAX = 5_000;
/** Retrying does not help: this user lacks the permission, or the topic does not allow it. */
const PERMANENT_DELETE_ERRORS: ReadonlySet<number> = new Set([
  CODE.topic_authorization_failed,
  CODE.cluster_authorization_failed,
  CODE.policy_violation,
]);

/** From one broker, from partitions that it leads. Waits up to `waitMs` for the first message. */
export async function fetch(
  connection: Connection,
  topicId: string,
  requests: readonly FetchRequest[],
  { waitMs, bytesMax }: { readonly waitMs: number; readonly bytesMax: number },
): Promise<Map<number, FetchResult>> {
  const partitions = requests.map(({ partition, epoch, position, bytesMax: partitionMaxBytes }) => ({
    partition,
    currentLeaderEpoch: epoch,
    fetchOffset: BigInt(position),
    lastFetchedEpoch: NO_EPOCH,
    partitionMaxBytes,
  }));
  const topics = [{ topicId, partitions }];
  const response = await responseOf(
    fetchV16.api.async(connection, waitMs, 1, bytesMax, READ_UNCOMMITTED, ...NO_SESSION, topics, [], ''),
  );
  const results = new Map<number, FetchResult>();
  for (const { partitionIndex, errorCode, highWatermark, records } of response.responses.flatMap(
    (topic) => topic.partitions,
  )) {
    const from = requests.find(({ partition }) => partition === partitionIndex)?.position ?? 0;
    const result = messagesIn(records ?? [], from);
    results.set(partitionIndex, { code: errorCode, from, end: Number(highWatermark), ...result });
  }
  return results;
}

function messagesIn(batches: readonly RecordsBatch[], from: number): Pick<FetchResult, 'messages' | 'next' | 'gap'> {
  const messages: FetchedMessage[] = [];
  let next = from;
  const stoppedAtGap = (to: number) => ({ messages, next, gap: { from: next, to } });
  for (const { firstOffset, lastOffsetDelta, attributes, records } of batches) {
    const first = Number(firstOffset);
    const end = first + lastOffsetDelta + 1;
    if ((attributes & IS_CONTROL) !== 0) {
      if (first > next) return stoppedAtGap(first);
      next = Math.max(next, end);
      continue;
    }
    for (const { offsetDelta, key, value } of records) {
      const position = first + offsetDelta;
      // Kafka returns whole batches, which may start before `from`.
      if (position < from) continue;
      if (position > next) return stoppedAtGap(position);
      const bytes = (key?.length ?? 0) + (value?.length ?? 0) + MESSAGE_OVERHEAD_BYTES;
      messages.push({ position, value, bytes });
      next = position + 1;
    }
    // A compacted batch still says how far it went.
    if (next < end) return stoppedAtGap(end);
  }
  return { messages, next, gap: null };
}

/** Messages from `position` on, or from the first that still exists. Does not wait for new ones. */
export async function fetchFrom(
  cluster: Cluster,
  topicId: string,
  request: FetchFromRequest,
): Promise<LeaderFetchResult> {
  const { partition, bytesMax } = request;
  let { position } = request;
  return withRetries(cluster, `partition ${partition} cannot be read`, async () => {
    const limits = { waitMs: 0, bytesMax };
    const leader = await cluster.leader(partition);
    const requests = [{ partition, epoch: leader.epoch, position, bytesMax }];
    const found = (await fetch(leader.connection, topicId, requests, limits)).get(partition);
    if (found === undefined) return undefined;
    const result = { ...found, leader };
    if (result.code === CODE.offset_out_of_range)
      position = await firstAvailable(cluster, topicId, { ...request, position });
    if (result.code === CODE.unknown_topic_id) await throwIfReplaced(cluster, topicId);
    if (result.code !== CODE.none || result.gap === null || result.messages.length > 0) return result;
    position = afterGap(cluster, topicId, { ...request, position }, result.gap);
    // Retried at once, from the new position.
    return { ...result, code: CODE.offset_out_of_range };
  });
}

function afterGap(
  cluster: Cluster,
  topicId: string,
  { partition, position, skipsRemoved }: FetchFromRequest,
  { from, to }: Gap,
): number {
  if (skipsRemoved) return to;
  throw new LogCorruptError(
    `partition ${partition} of topic ${cluster.topic} lacks ${positionsText(from, to)}, not processed yet: Kafka removed ` +
      'records from the middle of the partition, as compaction does. Set cleanup.policy of the topic to delete to prevent this. ' +
      'To continue without those records (they stay counted in lost_records of GET /ledger), run in the database: ' +
      statementToSkip(topicId, partition, position, to),
  );
}

/** Before anything of a partition is processed, the database may have no row for it. */
function statementToSkip(topicId: string, partition: number, from: number, to: number): string {
  if (from > 0) return `UPDATE sluice.positions SET position = ${to} ${whereInDatabase(topicId, partition)}`;
  return (
    `INSERT INTO sluice.positions (log, partition, position) VALUES ('${nameOfLog(topicId)}', ${partition}, ${to}) ` +
    `ON CONFLICT (log, partition) DO UPDATE SET position = ${to}`
  );
}

/** The row of the partition in `sluice.positions`. */
function whereInDatabase(topicId: string, partition: number): string {
  return `WHERE log = '${nameOfLog(topicId)}' AND partition = ${partition}`;
}

/** Starts at the first record: position 0 would count earlier ones as lost. */
export async function readAgainStatement(cluster: Cluster, topicId: string, partition: number): Promise<string> {
  const first = await offsetAt(cluster, partition, EARLIEST);
  return `UPDATE sluice.positions SET position = ${first}, last_trace_id = NULL ${whereInDatabase(topicId, partition)}`;
}

/** For a position that Kafka does not have: before the first or after the last. */
async function firstAvailable(
  cluster: Cluster,
  topicId: string,
  { partition, position, skipsRemoved }: FetchFromRequest,
): Promise<number> {
  const latest = await offsetAt(cluster, partition, LATEST);
  if (position > latest) {
    throw new LogCorruptError(
      `partition ${partition} of topic ${cluster.topic} ends at position ${latest}, but was already read up to ${position}: ` +
        'Kafka lost its newest records. Those below that position are stored; whether more were acknowledged is not known. ' +
        'To recover them, restore the files of the brokers. To continue with what it has (the partition is then read again ' +
        'from its beginning, and what is stored already is left out), run in the database: ' +
        (await readAgainStatement(cluster, topicId, partition)),
    );
  }
  const first = await offsetAt(cluster, partition, EARLIEST);
  if (first > position && !skipsRemoved) {
    const processed = position === 0 ? 'nothing of it is processed' : `is processed only up to ${position}`;
    throw new LogCorruptError(
      `partition ${partition} of topic ${cluster.topic} begins at position ${first}, but ${processed}: ` +
        'records that were not processed were deleted, by Kafka, by someone else, or by a processor of another database that ' +
        'did not know of this one. Set retention.ms and retention.bytes of the topic to -1. To recover those records, restore ' +
        'the files of the brokers. To continue without them (they stay counted in lost_records of ' +
        `GET /ledger), run in the database: ${statementToSkip(topicId, partition, position, first)}`,
    );
  }
  return Math.max(position, first);
}

/** The store keeps positions under this name. */
export function nameOfLog(topicId: string): string {
  return `kafka:${topicId}`;
}

export function isReplaced(metadata: ClusterMetadata | null, topicId: string): boolean {
  return metadata !== null && metadata.topicId !== null && metadata.topicId !== topicId;
}

export function replacedMessage(cluster: Cluster): string {
  return `the topic ${cluster.topic} was deleted and created again: restart to use the new topic`;
}

async function throwIfReplaced(cluster: Cluster, topicId: string): Promise<void> {
  if (isReplaced(await cluster.refresh(), topicId)) throw new LogCorruptError(replacedMessage(cluster));
}

/**
 * The first position whose message has at least this timestamp (milliseconds since 1970), or that of a special timestamp.
 * -1 if there is no such message.
 */
export async function offsetAt(cluster: Cluster, partition: number, time: number): Promise<number> {
  return (await findOffset(cluster, partition, time)).offset;
}

/** The newest timestamp in a partition, in milliseconds since 1970; 0 if it is empty. */
export async function newestTime(cluster: Cluster, partition: number): Promise<number> {
  return Math.max(0, (await findOffset(cluster, partition, NEWEST)).time);
}

interface FoundOffset {
  readonly code: number;
  readonly offset: number;
  /** -1 if there is no message, and for EARLIEST and LATEST. */
  readonly time: number;
}

function findOffset(cluster: Cluster, partition: number, time: number): Promise<FoundOffset> {
  return withRetries(cluster, `the offsets of partition ${partition} cannot be read`, async () => {
    const { connection, epoch } = await cluster.leader(partition);
    const partitions = [{ partitionIndex: partition, currentLeaderEpoch: epoch, timestamp: BigInt(time) }];
    const topics = [{ name: cluster.topic, partitions }];
    const response = await responseOf(listOffsetsV8.api.async(connection, -1, READ_UNCOMMITTED, topics));
    const found = response.topics[0]?.partitions[0];
    if (found === undefined) return undefined;
    return { code: found.errorCode, offset: Number(found.offset), time: Number(found.timestamp) };
  });
}

/** Null when done, otherwise why Kafka will never allow it. */
export async function deleteRecordsBefore(
  cluster: Cluster,
  partition: number,
  position: number,
): Promise<string | null> {
  const { reason } = await withRetries(cluster, `old records of partition ${partition} cannot be deleted`, async () => {
    const partitions = [{ partitionIndex: partition, offset: BigInt(position) }];
    const { connection } = await cluster.leader(partition);
    const response = await responseOf(
      deleteRecordsV2.api.async(connection, [{ name: cluster.topic, partitions }], DELETE_MS_MAX),
    );
    const found = response.topics[0]?.partitions[0];
    if (found === undefined) return undefined;
    const { errorCode } = found;
    if (PERMANENT_DELETE_ERRORS.has(errorCode)) return { code: CODE.none, reason: describeCode(errorCode) };
    // Already deleted by the member that had the partition before.
    return { code: errorCode === CODE.offset_out_of_range ? CODE.none : errorCode, reason: null };
  });
  return reason;
}

/** Retries with fresh metadata until there is a response without an error. */
async function withRetries<Result extends { readonly code: number }>(
  cluster: Cluster,
  what: string,
  request: () => Promise<Result | undefined>,
): Promise<Result> {
  const until = performance.now() + READ_MS_MAX;
  let problem = 'Kafka does not respond';
  for (let isFirst = true; isFirst || performance.now() < until; isFirst = false) {
    try {
      const result = await request();
      if (result?.code === CODE.none) return result;
      if (result !== undefined) problem = describeCode(result.code);
      if (result?.code === CODE.topic_authorization_failed) throw new LogForbiddenError(`${what}: ${problem}`);
      // The request has already moved to a position that exists.
      if (result?.code === CODE.offset_out_of_range) continue;
    } catch (error) {
      if (error instanceof LogCorruptError || error instanceof LogForbiddenError) throw error;
      problem = errorText(error);
    }
    await sleep(RETRY_MS);
    await cluster.refresh().catch((error: unknown) => {
      problem = errorText(error);
    });
  }
  throw new LogUnavailableError(`${what}: ${problem}`);
}
