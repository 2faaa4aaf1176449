/**
 * Writes messages to the partitions of the topic, exactly once each, or says that it could not. One request is under way
 * to a broker at a time; what comes meanwhile goes together with the next, and nothing waits while nothing is under way.
 *
 * Invariant: a message is acknowledged only after Kafka said that all replicas in sync have its batch. What fails is
 * tried again until its deadline: under the same number where Kafka may have it, so that it is not there twice. Bytes are
 * bounded by the caller, time by the deadline.
 */

import { LogUnavailableError } from '../../log.ts';
import { PartitionQueue, fail, type ProducerId, type Waiter } from './batches.ts';
import type { Cluster } from './cluster.ts';
import { CODE, reasonOf } from './codes.ts';
import type { Message } from './message.ts';
import { newProducerId, produce } from './produce.ts';

export const APPEND_MS_MAX = 5_000;
/** For Kafka to hear from all replicas, a little less than anybody waits here. */
const REPLICAS_MS_MAX = 4_500;
const REQUEST_BYTES_MAX = 16 * 1024 * 1024;
const RETRY_MS = 100;
const DEADLINE_CHECK_MS = 250;

/** Kafka looked at the batch and did not take it. After any other error it may have. */
const NOT_TAKEN: ReadonlySet<number> = new Set([
  CODE.not_enough_replicas,
  CODE.corrupt_message,
  CODE.topic_authorization_failed,
  CODE.cluster_authorization_failed,
]);
/** The batch itself is what Kafka does not take. */
const UNACCEPTABLE: ReadonlySet<number> = new Set([
  CODE.message_too_large,
  CODE.record_list_too_large,
  CODE.invalid_record,
  CODE.invalid_timestamp,
]);
/** What Kafka knows of our producer id is not what we know. */
const OUT_OF_STEP: ReadonlySet<number> = new Set([
  CODE.out_of_order_sequence,
  CODE.invalid_producer_epoch,
  CODE.unknown_producer_id,
]);

export interface ProducerSetup {
  readonly cluster: Cluster;
  /** Called with the reason when somebody waited in vain. */
  readonly onLate: (reason: string) => void;
  /** Called with what an operator should know of a message that was not taken. */
  readonly onRefused: (reason: string) => void;
  /** Called with the time that a request took. */
  readonly onBatches: (seconds: number) => void;
}

export class Producer {
  readonly #setup: ProducerSetup;
  readonly #queues = new Map<number, PartitionQueue>();
  /** Brokers that a request is under way to. */
  readonly #busy = new Set<number>();
  /** For partitions that have none; each may use it from the start, once. */
  #producer: ProducerId | null = null;
  #isAskingForProducer = false;
  #isPumpDue = false;
  #timer: NodeJS.Timeout | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  #idle: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined;

  constructor(setup: ProducerSetup) {
    this.#setup = setup;
  }

  /** Resolves when Kafka has all of them. They are those of one request, each with its partition. */
  send(messages: readonly { readonly partition: number; readonly message: Message }[]): Promise<void> {
    return new Promise((resolve, reject) => {
      const deadline = performance.now() + APPEND_MS_MAX;
      const waiter: Waiter = { deadline, messagesLeft: messages.length, isSettled: false, resolve, reject };
      for (const { partition, message } of messages) this.#queue(partition).push({ message, waiter });
      this.#soon();
    });
  }

  /** Resolves when nothing waits any more, by whatever end. */
  async settled(): Promise<void> {
    if (this.#isIdle()) return;
    this.#idle ??= Promise.withResolvers<void>();
    await this.#idle.promise;
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #queue(partition: number): PartitionQueue {
    let queue = this.#queues.get(partition);
    if (queue === undefined) {
      queue = new PartitionQueue(this.#setup.cluster.topic, partition);
      this.#queues.set(partition, queue);
    }
    return queue;
  }

  #isIdle(): boolean {
    return this.#queues.values().every((queue) => queue.isIdle);
  }

  /** After all that this turn of the event loop brings. */
  #soon(): void {
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
    let wakeAt = Number.POSITIVE_INFINITY;
    for (const queue of this.#queues.values()) {
      if (queue.isIdle) continue;
      wakeAt = Math.min(wakeAt, now + DEADLINE_CHECK_MS);
      if (queue.batch?.isUnderWay === true) continue;
      if (queue.notBefore > now) {
        wakeAt = Math.min(wakeAt, queue.notBefore);
        continue;
      }
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
      // Whoever had its turn comes last: requests are bounded, and all partitions are to be in one of them.
      for (const queue of queues) {
        this.#queues.delete(queue.partition);
        this.#queues.set(queue.partition, queue);
      }
      void this.#send(broker, queues);
    }
    if (this.#isIdle()) this.#idle?.resolve();
    else this.#wakeAt(wakeAt);
  }

  /** Undefined while it is not known where to send, or under which producer id. */
  #brokerFor(queue: PartitionQueue, now: number): number | undefined {
    const { cluster } = this.#setup;
    if (queue.producer === null) {
      if (this.#producer === null) {
        void this.#askForProducer();
        return undefined;
      }
      queue.use(this.#producer);
    }
    const leader = cluster.known?.partitions[queue.partition]?.leader ?? -1;
    if (leader >= 0) return leader;
    this.#later(queue, `partition ${queue.partition} has no leader`, now);
    return undefined;
  }

  async #send(broker: number, queues: readonly PartitionQueue[]): Promise<void> {
    const { cluster } = this.#setup;
    const batches = queues.flatMap(({ partition, batch }) =>
      batch === null ? [] : [{ partition, batch, records: batch.records }],
    );
    this.#busy.add(broker);
    for (const { batch } of batches) batch.isUnderWay = true;
    try {
      const connection = await cluster.connection(broker);
      const startedAt = performance.now();
      // From here on Kafka may have them.
      const codes = await produce(connection, cluster.topic, batches, REPLICAS_MS_MAX).catch((error: unknown) => {
        for (const { batch } of batches) batch.isInDoubt = true;
        throw error;
      });
      this.#setup.onBatches((performance.now() - startedAt) / 1000);
      for (const { batch } of batches) batch.isUnderWay = false;
      for (const queue of queues) {
        const { code, words } = codes.get(queue.partition) ?? { code: -1, words: 'Kafka did not answer for it' };
        this.#judge(queue, code, words);
      }
    } catch (error) {
      for (const { batch } of batches) batch.isUnderWay = false;
      for (const queue of queues) this.#retry(queue, reasonOf(error));
    }
    this.#busy.delete(broker);
    // What came meanwhile goes at once.
    this.#pump();
  }

  #judge(queue: PartitionQueue, code: number, words: string): void {
    const isInDoubt = queue.batch?.isInDoubt === true;
    if (code === CODE.none || (code === CODE.duplicate_sequence && isInDoubt)) {
      queue.taken();
      return;
    }
    if (OUT_OF_STEP.has(code) || code === CODE.duplicate_sequence) {
      if (this.#producer === queue.producer) this.#producer = null;
      if (isInDoubt || code === CODE.duplicate_sequence) queue.giveUp(unavailable(words));
      else {
        queue.producer = null;
        queue.putBack();
      }
      return;
    }
    if (UNACCEPTABLE.has(code) && !isInDoubt) {
      const refused = queue.batch?.waiting ?? [];
      if (queue.putBackAlone()) return;
      const bytes = refused[0]?.message.value.length ?? 0;
      const reason = `a message of ${bytes} bytes was not taken: ${words}`;
      fail(refused, new LogUnavailableError(reason));
      this.#setup.onRefused(reason);
      return;
    }
    if (!NOT_TAKEN.has(code) && queue.batch !== null) queue.batch.isInDoubt = true;
    this.#retry(queue, words);
  }

  /** What was not taken: after a moment, from what the cluster looks like by then. */
  #retry(queue: PartitionQueue, problem: string): void {
    if (queue.batch?.isInDoubt === false) queue.putBack();
    this.#later(queue, problem, performance.now());
  }

  #later(queue: PartitionQueue, problem: string, now: number): void {
    queue.problem = problem;
    queue.notBefore = now + RETRY_MS;
    this.#wakeAt(queue.notBefore);
    void this.#setup.cluster.refresh().catch((error: unknown) => {
      queue.problem = reasonOf(error);
    });
  }

  async #askForProducer(): Promise<void> {
    if (this.#isAskingForProducer) return;
    this.#isAskingForProducer = true;
    try {
      this.#producer = await newProducerId(await this.#setup.cluster.any());
    } catch (error) {
      const now = performance.now();
      for (const queue of this.#queues.values()) if (!queue.isIdle) this.#later(queue, reasonOf(error), now);
    }
    this.#isAskingForProducer = false;
    this.#pump();
  }

  #wakeAt(at: number): void {
    if (at >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    this.#timer = setTimeout(
      () => {
        this.#timerAt = Number.POSITIVE_INFINITY;
        this.#expire();
        this.#pump();
      },
      Math.max(1, at - performance.now()),
    );
  }

  /** Whoever waited long enough is told so. */
  #expire(): void {
    const now = performance.now();
    let reason: string | undefined;
    for (const queue of this.#queues.values()) {
      const why = queue.problem ?? 'it did not answer';
      if (queue.expire(now, () => unavailable(why))) reason ??= why;
    }
    for (const queue of this.#queues.values()) {
      const before = queue.producer;
      queue.forgetSettled();
      if (queue.producer === null && before === this.#producer) this.#producer = null;
    }
    if (reason !== undefined) this.#setup.onLate(reason);
  }
}

function unavailable(reason: string): LogUnavailableError {
  return new LogUnavailableError(`Kafka did not take the data in time: ${reason}`);
}
