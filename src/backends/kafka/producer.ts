/**
 * The idempotent producer: appends messages to the partitions of the topic, each exactly once, or rejects. One produce
 * request at a time is in flight to a broker; messages that arrive meanwhile go into the next one, and no timer delays a
 * message while nothing is in flight. It replaces the client's own producer, which appends batches twice and stops when
 * a leader moves (docs/decisions/038-kafka-client.md).
 *
 * Invariant: a request is acknowledged only after all in-sync replicas have its batches. A batch that Kafka may have
 * appended although no response arrived is in doubt: it is sent again byte for byte, with the same sequence number, so
 * that Kafka recognises it. A batch that Kafka has not appended returns to the queue; one that it rejects for its content
 * is sent message by message, and a message that is rejected alone fails. Everything else is retried until the deadline.
 * The caller bounds the bytes, the deadline bounds the time.
 */

import {
  type Connection,
  createAPI,
  createRecordsBatch,
  initProducerIdV4,
  NumericMap,
  ProduceAcks,
  produceV11,
  Writer,
} from '@platformatic/kafka';
import { LogUnavailableError } from '../../log.ts';
import type { Cluster } from './cluster.ts';
import { CODE, describeCode, errorText, responseOf } from './errors.ts';
import { type Message, MESSAGE_OVERHEAD_BYTES } from './message.ts';

export const APPEND_MS_MAX = 5_000;
/** How long Kafka waits for the replicas; a little less than APPEND_MS_MAX. */
const REPLICAS_MS_MAX = 4_500;
const REQUEST_BYTES_MAX = 16 * 1024 * 1024;
/** Many small messages share a batch; a larger message has one of its own. */
const BATCH_BYTES_MAX = 1024 * 1024;
const RETRY_MS = 100;
/** How often retries and deadlines are looked at, while anything waits. */
const CHECK_MS = 50;
const SEQUENCE_MASK = 0x7fff_ffff;
const PRODUCE_KEY = 0;
const PRODUCE_VERSION = 11;

/** Kafka has checked the batch and not appended it. After any other error it may have. */
const NOT_APPENDED: ReadonlySet<number> = new Set([
  CODE.not_enough_replicas,
  CODE.corrupt_message,
  CODE.topic_authorization_failed,
  CODE.cluster_authorization_failed,
]);
/** Kafka rejects the batch for what is in it. */
const REJECTED: ReadonlySet<number> = new Set([
  CODE.message_too_large,
  CODE.record_list_too_large,
  CODE.invalid_record,
  CODE.invalid_timestamp,
]);
/** The sequence numbers that Kafka has for the producer id are not ours. */
const PRODUCER_STATE_LOST: ReadonlySet<number> = new Set([
  CODE.out_of_order_sequence,
  CODE.invalid_producer_epoch,
  CODE.unknown_producer_id,
]);

/** Kafka recognises a batch by this and its sequence number. */
interface ProducerId {
  readonly id: bigint;
  readonly epoch: number;
}

/** One `send`: settles when all its messages are acknowledged, or with the first that fails. */
interface PendingRequest {
  readonly deadline: number;
  messagesLeft: number;
  isSettled: boolean;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

interface PendingMessage {
  readonly message: Message;
  readonly request: PendingRequest;
}

interface Batch {
  readonly messages: readonly PendingMessage[];
  readonly records: ReturnType<typeof createRecordsBatch>;
  isInDoubt: boolean;
  isInFlight: boolean;
}

interface ProducerSetup {
  readonly cluster: Cluster;
  /** Called with the reason when a request missed its deadline. */
  readonly onTimeout: (reason: string) => void;
  /** Called with what an operator should know about a message that Kafka rejected. */
  readonly onRejected: (reason: string) => void;
  readonly onProduced: (seconds: number) => void;
}

export class Producer {
  readonly #setup: ProducerSetup;
  readonly #queues = new Map<number, PartitionQueue>();
  /** Brokers with a request in flight. */
  readonly #busy = new Set<number>();
  /**
   * The producer id for partitions without one. A partition starts each id at sequence number 0, so it uses it only
   * once.
   */
  #producerId: ProducerId | null = null;
  #isInitializing = false;
  #isPumpDue = false;
  #timer: NodeJS.Timeout | undefined;
  #idle: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined;

  constructor(setup: ProducerSetup) {
    this.#setup = setup;
  }

  /** Resolves when Kafka has all messages of a request. */
  send(messages: readonly { readonly partition: number; readonly message: Message }[]): Promise<void> {
    return new Promise((resolve, reject) => {
      const deadline = performance.now() + APPEND_MS_MAX;
      const request: PendingRequest = { deadline, messagesLeft: messages.length, isSettled: false, resolve, reject };
      for (const { partition, message } of messages) this.#queue(partition).push({ message, request });
      this.#schedulePump();
    });
  }

  async flush(): Promise<void> {
    if (this.#isIdle()) return;
    this.#idle ??= Promise.withResolvers<void>();
    await this.#idle.promise;
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #queue(partition: number): PartitionQueue {
    const { topic } = this.#setup.cluster;
    return this.#queues.getOrInsertComputed(partition, () => new PartitionQueue(topic, partition));
  }

  #isIdle(): boolean {
    return this.#queues.values().every((queue) => queue.isIdle);
  }

  /** After everything that this turn of the event loop appends. */
  #schedulePump(): void {
    if (this.#isPumpDue) return;
    this.#isPumpDue = true;
    setImmediate(() => {
      this.#isPumpDue = false;
      this.#pump();
    });
  }

  #pump(): void {
    const now = performance.now();
    const byBroker = new Map<number, { readonly queues: PartitionQueue[]; bytes: number }>();
    for (const queue of this.#queues.values()) {
      if (queue.isIdle || queue.batch?.isInFlight === true || queue.notBefore > now) continue;
      const broker = this.#brokerFor(queue, now);
      if (broker === undefined || this.#busy.has(broker)) continue;
      const group = byBroker.get(broker) ?? { queues: [], bytes: 0 };
      if (group.bytes >= REQUEST_BYTES_MAX) continue;
      const batch = queue.next();
      if (batch === null) continue;
      group.queues.push(queue);
      group.bytes += batch.records.length;
      byBroker.set(broker, group);
    }
    for (const [broker, { queues }] of byBroker) {
      // To the end of the map: requests are bounded, and no partition may be left out again and again.
      for (const queue of queues) {
        this.#queues.delete(queue.partition);
        this.#queues.set(queue.partition, queue);
      }
      void this.#send(broker, queues);
    }
    if (this.#isIdle()) this.#idle?.resolve();
    else this.#timer ??= setTimeout(() => this.#check(), CHECK_MS);
  }

  /** Undefined while there is no leader or no producer id. */
  #brokerFor(queue: PartitionQueue, now: number): number | undefined {
    const { cluster } = this.#setup;
    if (queue.producerId === null) {
      if (this.#producerId === null) {
        void this.#initProducerId();
        return undefined;
      }
      queue.start(this.#producerId);
    }
    const leader = cluster.cachedMetadata?.partitions[queue.partition]?.leader ?? -1;
    if (leader >= 0) return leader;
    this.#backOff(queue, `partition ${queue.partition} has no leader`, now);
    return undefined;
  }

  async #send(broker: number, queues: readonly PartitionQueue[]): Promise<void> {
    const { cluster } = this.#setup;
    const batches = queues.flatMap(({ partition, batch }) =>
      batch === null ? [] : [{ partition, batch, records: batch.records }],
    );
    this.#busy.add(broker);
    for (const { batch } of batches) batch.isInFlight = true;
    try {
      const connection = await cluster.connection(broker);
      const startedAt = performance.now();
      // From here on Kafka may have the batches.
      const results = await produce(connection, cluster.topic, batches).catch((error: unknown) => {
        for (const { batch } of batches) batch.isInDoubt = true;
        throw error;
      });
      this.#setup.onProduced((performance.now() - startedAt) / 1000);
      for (const { batch } of batches) batch.isInFlight = false;
      for (const queue of queues) {
        const missing = { code: -1, message: 'the response does not mention it' };
        this.#handleResult(queue, results.get(queue.partition) ?? missing);
      }
    } catch (error) {
      for (const { batch } of batches) batch.isInFlight = false;
      for (const queue of queues) this.#retry(queue, errorText(error));
    }
    this.#busy.delete(broker);
    // Messages that arrived meanwhile are sent now.
    this.#pump();
  }

  #handleResult(queue: PartitionQueue, { code, message }: ProduceResult): void {
    const isInDoubt = queue.batch?.isInDoubt === true;
    if (code === CODE.none || (code === CODE.duplicate_sequence && isInDoubt)) {
      queue.acknowledge();
      return;
    }
    if (PRODUCER_STATE_LOST.has(code) || code === CODE.duplicate_sequence) {
      if (this.#producerId === queue.producerId) this.#producerId = null;
      if (isInDoubt || code === CODE.duplicate_sequence) queue.abandon(unavailable(message));
      else {
        queue.producerId = null;
        queue.requeue();
      }
      return;
    }
    if (REJECTED.has(code) && !isInDoubt) {
      const rejected = queue.batch?.messages ?? [];
      if (queue.requeueSingly()) return;
      const bytes = rejected[0]?.message.value.length ?? 0;
      const reason = `Kafka rejected a message of ${bytes} bytes: ${message}`;
      fail(rejected, new LogUnavailableError(reason));
      this.#setup.onRejected(reason);
      return;
    }
    if (!NOT_APPENDED.has(code) && queue.batch !== null) queue.batch.isInDoubt = true;
    this.#retry(queue, message);
  }

  #retry(queue: PartitionQueue, problem: string): void {
    if (queue.batch?.isInDoubt === false) queue.requeue();
    this.#backOff(queue, problem, performance.now());
  }

  #backOff(queue: PartitionQueue, problem: string, now: number): void {
    queue.problem = problem;
    queue.notBefore = now + RETRY_MS;
    void this.#setup.cluster.refresh().catch((error: unknown) => {
      queue.problem = errorText(error);
    });
  }

  async #initProducerId(): Promise<void> {
    if (this.#isInitializing) return;
    this.#isInitializing = true;
    try {
      this.#producerId = await newProducerId(await this.#setup.cluster.anyBroker());
    } catch (error) {
      const now = performance.now();
      for (const queue of this.#queues.values()) if (!queue.isIdle) this.#backOff(queue, errorText(error), now);
    }
    this.#isInitializing = false;
    this.#pump();
  }

  /** Rejects requests that missed their deadline, and sends what is to be retried by now. */
  #check(): void {
    this.#timer = undefined;
    const now = performance.now();
    let reason: string | undefined;
    for (const queue of this.#queues.values()) {
      const why = queue.problem ?? 'no response';
      if (queue.expire(now, () => unavailable(why))) reason ??= why;
    }
    for (const queue of this.#queues.values()) {
      const before = queue.producerId;
      queue.dropSettled();
      if (queue.producerId === null && before === this.#producerId) this.#producerId = null;
    }
    if (reason !== undefined) this.#setup.onTimeout(reason);
    this.#pump();
  }
}

/**
 * The messages that wait for one partition, in order, and the batch that is sent next. An abandoned batch in doubt leaves
 * its sequence number unknown, so the partition then needs another producer id.
 */
class PartitionQueue {
  readonly partition: number;
  readonly #topic: string;
  #waiting: PendingMessage[] = [];
  batch: Batch | null = null;
  producerId: ProducerId | null = null;
  /** Not to be sent before; by `performance.now`. */
  notBefore = 0;
  problem: string | null = null;
  #sequence = 0;
  /** How many messages still get a batch each, because a batch of all of them was too large. */
  #sendSinglyCount = 0;

  constructor(topic: string, partition: number) {
    this.#topic = topic;
    this.partition = partition;
  }

  get isIdle(): boolean {
    return this.batch === null && this.#waiting.length === 0;
  }

  push(message: PendingMessage): void {
    this.#waiting.push(message);
  }

  start(producerId: ProducerId): void {
    this.producerId = producerId;
    this.#sequence = 0;
  }

  /** The batch to send next, if there is one. Needs a producer id. */
  next(): Batch | null {
    if (this.batch !== null || this.producerId === null) return this.batch;
    const messages: PendingMessage[] = [];
    let bytes = 0;
    let from = 0;
    for (; from < this.#waiting.length; from++) {
      const pending = this.#waiting[from] as PendingMessage;
      if (pending.request.isSettled) continue;
      const size = pending.message.key.length + pending.message.value.length + MESSAGE_OVERHEAD_BYTES;
      if (messages.length > 0 && (bytes + size > BATCH_BYTES_MAX || this.#sendSinglyCount > 0)) break;
      bytes += size;
      messages.push(pending);
    }
    this.#waiting = this.#waiting.slice(from);
    if (messages.length === 0) return null;
    this.#sendSinglyCount = Math.max(0, this.#sendSinglyCount - messages.length);
    this.batch = { messages, records: this.#encode(messages, this.producerId), isInDoubt: false, isInFlight: false };
    return this.batch;
  }

  acknowledge(): void {
    const { messages } = this.#takeBatch();
    this.problem = null;
    this.#sequence = (this.#sequence + messages.length) & SEQUENCE_MASK;
    for (const { request } of messages) {
      request.messagesLeft--;
      if (request.messagesLeft > 0 || request.isSettled) continue;
      request.isSettled = true;
      request.resolve();
    }
  }

  /** Kafka has not appended the batch: its messages return to the head of the queue. */
  requeue(): void {
    const { messages } = this.#takeBatch();
    this.#waiting = [...messages, ...this.#waiting];
  }

  /** The same for a batch that was too large. False if it had one message, which is then dropped. */
  requeueSingly(): boolean {
    const { batch } = this;
    if (batch !== null && batch.messages.length === 1) {
      this.#takeBatch();
      return false;
    }
    this.#sendSinglyCount = batch?.messages.length ?? 0;
    this.requeue();
    return true;
  }

  /** Whether Kafka has the batch cannot be found out any more. */
  abandon(error: Error): void {
    const { messages } = this.#takeBatch();
    this.producerId = null;
    fail(messages, error);
  }

  /** Rejects requests past their deadline. True if there were any. */
  expire(now: number, error: () => Error): boolean {
    const late = [...(this.batch?.messages ?? []), ...this.#waiting].filter(
      ({ request }) => request.deadline <= now && !request.isSettled,
    );
    if (late.length > 0) fail(late, error());
    return late.length > 0;
  }

  dropSettled(): void {
    this.#waiting = this.#waiting.filter(({ request }) => !request.isSettled);
    const { batch } = this;
    if (batch === null || batch.isInFlight || !batch.messages.every(({ request }) => request.isSettled)) return;
    this.#takeBatch();
    if (batch.isInDoubt) this.producerId = null;
  }

  #takeBatch(): Batch {
    const { batch } = this;
    if (batch === null) throw new Error(`partition ${this.partition} has no batch`);
    this.batch = null;
    return batch;
  }

  #encode(pending: readonly PendingMessage[], { id, epoch }: ProducerId): Batch['records'] {
    const sequences = new NumericMap();
    sequences.set(`${this.#topic}:${this.partition}`, this.#sequence);
    const messages = pending.map(({ message: { key, value, timestamp } }) => ({
      key,
      value,
      timestamp: BigInt(timestamp),
      topic: this.#topic,
      partition: this.partition,
    }));
    return createRecordsBatch(messages, { producerId: id, producerEpoch: epoch, sequences });
  }
}

function fail(messages: readonly PendingMessage[], error: Error): void {
  for (const { request } of messages) {
    if (request.isSettled) continue;
    request.isSettled = true;
    request.reject(error);
  }
}

function unavailable(reason: string): LogUnavailableError {
  return new LogUnavailableError(`Kafka did not append the data in time: ${reason}`);
}

interface EncodedBatch {
  readonly partition: number;
  readonly records: Batch['records'];
}

interface ProduceResult {
  readonly code: number;
  readonly message: string;
}

/** The client's own produce request has one producer id for all partitions and encodes batches again at each attempt. */
const produceApi = createAPI<[topic: string, batches: readonly EncodedBatch[]], produceV11.ProduceResponse>(
  PRODUCE_KEY,
  PRODUCE_VERSION,
  (topic: string, batches: readonly EncodedBatch[]) =>
    Writer.create()
      .appendString(null)
      .appendInt16(ProduceAcks.ALL)
      .appendInt32(REPLICAS_MS_MAX)
      .appendArray([topic], (forTopic, name) => {
        forTopic.appendString(name).appendArray([...batches], (writer, { partition, records }) => {
          writer
            .appendInt32(partition)
            .appendUnsignedVarInt(records.length + 1)
            .appendFrom(records);
        });
      })
      .appendTaggedFields(),
  produceV11.parseResponse,
);

/** By partition. */
async function produce(
  connection: Connection,
  topic: string,
  batches: readonly EncodedBatch[],
): Promise<Map<number, ProduceResult>> {
  const { responses } = await responseOf(produceApi.async(connection, topic, batches));
  return new Map(
    responses.flatMap(({ partitionResponses }) =>
      partitionResponses.map(({ index, errorCode, errorMessage }) => [
        index,
        { code: errorCode, message: errorMessage ?? describeCode(errorCode) },
      ]),
    ),
  );
}

async function newProducerId(connection: Connection): Promise<ProducerId> {
  const response = await responseOf(initProducerIdV4.api.async(connection, null, 0, -1n, -1));
  if (response.errorCode !== CODE.none) throw new LogUnavailableError(describeCode(response.errorCode));
  return { id: response.producerId, epoch: response.producerEpoch };
}
