/**
 * The processor's reader: a member of the consumer group that shares the partitions of the topic, with read-ahead. At
 * the end of a partition `read` returns from memory, without a request to Kafka; `waitForMore` resolves as soon as a
 * new message has been fetched.
 *
 * The read-ahead buffer of a revoked partition is dropped immediately. Whenever a buffer is started, the record before it
 * must be the one that the processor says (`lastTraceId`): while a broker is down, its files may be put back from an
 * older copy, and the positions used again. If the topic is deleted and created again, the reader fails: it is a
 * different log, in which the old positions mean nothing.
 */

import type { LogBatch } from '../../log.ts';
import { assertContinues } from '../../log/continuity.ts';
import { isReplaced, replacedMessage } from './fetch.ts';
import type { GroupMembership } from './group-offsets.ts';
import { Membership } from './membership.ts';
import { ReadAhead } from './read-ahead.ts';
import { KafkaLogReader, type ReaderSetup, recordsOf } from './reader.ts';
import type { Cluster } from './cluster.ts';

/** `waitForMore` resolves after this even without a message. */
const WAIT_MS_MAX = 500;

/** Retrying does not help; after a restart the new topic is used. */
class TopicReplacedError extends Error {
  override readonly name = 'TopicReplacedError';
}

export class KafkaGroupReader extends KafkaLogReader {
  readonly #membership: Membership;
  readonly #readAhead: ReadAhead;
  #assigned: ReadonlySet<number> = new Set();

  /** `aheadCluster` is only for read-ahead. */
  constructor(setup: ReaderSetup, aheadCluster: Cluster) {
    super(setup);
    const { cluster, topicId, group } = setup;
    this.#readAhead = new ReadAhead(aheadCluster, topicId, (messages) => this.sampleSizes(messages));
    const onChange = (partitions: ReadonlySet<number>): void => {
      this.#assigned = partitions;
      this.#readAhead.retain(partitions);
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
    if (!this.#assigned.has(partition)) {
      const batch = await super.read(partition, position, bytesMax);
      await assertContinues(this, partition, position, lastTraceId);
      return batch;
    }
    let messages = this.#readAhead.peek(partition, position);
    if (messages === undefined) {
      const result = await this.fetchAt(partition, position);
      this.sampleSizes(result.messages);
      // After the fetch, which may have waited for a broker to be back.
      await assertContinues(this, partition, position, lastTraceId);
      if (!this.#assigned.has(partition)) return { records: [], next: position };
      this.#readAhead.put(partition, position, result);
      messages = this.#readAhead.peek(partition, position) ?? [];
    }
    const { records, count } = recordsOf(messages, partition, bytesMax);
    return { records, next: count === 0 ? position : this.#readAhead.consume(partition, count) };
  }

  /** Resolves when there is more to read or the partitions have changed, and after WAIT_MS_MAX at the latest. */
  waitForMore(): Promise<void> {
    return this.#readAhead.waitForMessages(WAIT_MS_MAX);
  }

  override async close(): Promise<void> {
    await this.#membership.close();
    await this.#readAhead.close();
    await super.close();
  }

  protected override membership(): GroupMembership {
    return this.#membership.current;
  }
}
