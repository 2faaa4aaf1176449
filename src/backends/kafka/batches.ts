/**
 * What waits to be written to one partition, in order, and the batch that is on its way. A batch that Kafka may have
 * taken without our hearing of it is in doubt: it is sent again byte for byte, under the same number, so that Kafka knows
 * it by that and takes it once. A batch that Kafka surely has not taken goes back to those that wait.
 *
 * The number of a batch belongs to a producer id. A batch in doubt that is given up leaves its number unknown, so the
 * partition then needs another producer id.
 */

import { createRecordsBatch, NumericMap } from '@platformatic/kafka';
import type { Message } from './message.ts';

/** Many small messages at once; a larger one goes alone. */
const BATCH_BYTES_MAX = 1024 * 1024;
const SEQUENCE_MASK = 0x7fff_ffff;
/** What Kafka adds to a message, about. */
const MESSAGE_OVERHEAD_BYTES = 24;

/** Under which Kafka knows batches again. */
export interface ProducerId {
  readonly id: bigint;
  readonly epoch: number;
}

/** One request: settles when all its messages are taken, or with the first that is not. */
export interface Waiter {
  readonly deadline: number;
  messagesLeft: number;
  isSettled: boolean;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

export interface Waiting {
  readonly message: Message;
  readonly waiter: Waiter;
}

export interface Batch {
  readonly waiting: readonly Waiting[];
  readonly records: ReturnType<typeof createRecordsBatch>;
  isInDoubt: boolean;
  isUnderWay: boolean;
}

export class PartitionQueue {
  readonly partition: number;
  readonly #topic: string;
  #waiting: Waiting[] = [];
  batch: Batch | null = null;
  producer: ProducerId | null = null;
  /** Not to be sent before; by `performance.now`. */
  notBefore = 0;
  /** Why the last batch was not taken. */
  problem: string | null = null;
  #sequence = 0;
  /** So many messages go alone, because a batch that held them was too large. */
  #alone = 0;

  constructor(topic: string, partition: number) {
    this.#topic = topic;
    this.partition = partition;
  }

  get isIdle(): boolean {
    return this.batch === null && this.#waiting.length === 0;
  }

  push(waiting: Waiting): void {
    this.#waiting.push(waiting);
  }

  use(producer: ProducerId): void {
    this.producer = producer;
    this.#sequence = 0;
  }

  /** The batch to send next, if there is one. Needs a producer id. */
  next(): Batch | null {
    if (this.batch !== null || this.producer === null) return this.batch;
    const taken: Waiting[] = [];
    let bytes = 0;
    let from = 0;
    for (; from < this.#waiting.length; from++) {
      const waiting = this.#waiting[from] as Waiting;
      if (waiting.waiter.isSettled) continue;
      const size = waiting.message.key.length + waiting.message.value.length + MESSAGE_OVERHEAD_BYTES;
      if (taken.length > 0 && (bytes + size > BATCH_BYTES_MAX || this.#alone > 0)) break;
      bytes += size;
      taken.push(waiting);
    }
    this.#waiting = this.#waiting.slice(from);
    if (taken.length === 0) return null;
    this.#alone = Math.max(0, this.#alone - taken.length);
    this.batch = { waiting: taken, records: this.#encode(taken, this.producer), isInDoubt: false, isUnderWay: false };
    return this.batch;
  }

  /** Kafka has the batch. */
  taken(): void {
    const batch = this.#end();
    this.problem = null;
    this.#sequence = (this.#sequence + batch.waiting.length) & SEQUENCE_MASK;
    for (const { waiter } of batch.waiting) {
      waiter.messagesLeft--;
      if (waiter.messagesLeft > 0 || waiter.isSettled) continue;
      waiter.isSettled = true;
      waiter.resolve();
    }
  }

  /** Kafka surely does not have the batch: its messages wait again, in their places. */
  putBack(): void {
    const batch = this.#end();
    this.#waiting = [...batch.waiting, ...this.#waiting];
  }

  /** Likewise, but the batch was too large. False if it was a single message, which waits no more. */
  putBackAlone(): boolean {
    const { batch } = this;
    if (batch !== null && batch.waiting.length === 1) {
      this.#end();
      return false;
    }
    this.#alone = batch?.waiting.length ?? 0;
    this.putBack();
    return true;
  }

  /** Nobody knows whether Kafka has the batch, and nobody asks again. */
  giveUp(error: Error): void {
    const batch = this.#end();
    this.producer = null;
    fail(batch.waiting, error);
  }

  /** Tells those who waited too long. True if there were any. */
  expire(now: number, error: () => Error): boolean {
    const late = [...(this.batch?.waiting ?? []), ...this.#waiting].filter(
      ({ waiter }) => waiter.deadline <= now && !waiter.isSettled,
    );
    if (late.length > 0) fail(late, error());
    return late.length > 0;
  }

  /** Lets go of what nobody waits for any more. */
  forgetSettled(): void {
    this.#waiting = this.#waiting.filter(({ waiter }) => !waiter.isSettled);
    const { batch } = this;
    if (batch === null || batch.isUnderWay || !batch.waiting.every(({ waiter }) => waiter.isSettled)) return;
    this.#end();
    if (batch.isInDoubt) this.producer = null;
  }

  #end(): Batch {
    const { batch } = this;
    if (batch === null) throw new Error(`partition ${this.partition} has no batch`);
    this.batch = null;
    return batch;
  }

  #encode(waiting: readonly Waiting[], { id, epoch }: ProducerId): Batch['records'] {
    const sequences = new NumericMap();
    sequences.set(`${this.#topic}:${this.partition}`, this.#sequence);
    const messages = waiting.map(({ message: { key, value, timestamp } }) => ({
      key,
      value,
      timestamp: BigInt(timestamp),
      topic: this.#topic,
      partition: this.partition,
    }));
    return createRecordsBatch(messages, { producerId: id, producerEpoch: epoch, sequences });
  }
}

export function fail(waiting: readonly Waiting[], error: Error): void {
  for (const { waiter } of waiting) {
    if (waiter.isSettled) continue;
    waiter.isSettled = true;
    waiter.reject(error);
  }
}
