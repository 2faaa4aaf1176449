/**
 * The processor's reader: a member of the group that shares the partitions of the topic, reading ahead of where the
 * processor stands. At the end of a partition `read` answers from memory, without asking Kafka: what comes is there a
 * moment after it was acknowledged, and `waitForMore` resolves then.
 *
 * A partition that is taken away is forgotten at once, with all that was read ahead of it. A topic that is replaced by
 * another of its name ends the reader: it is another log, in which the positions mean nothing.
 */

import type { LogBatch } from '../../log.ts';
import { isReplaced, replacedWords } from './fetch.ts';
import type { GroupMembership } from './group-positions.ts';
import { Membership } from './membership.ts';
import { ReadAhead } from './read-ahead.ts';
import { KafkaLogReader, type ReaderSetup, recordsOf } from './reader.ts';
import type { Cluster } from './cluster.ts';

/** After this the processor looks again anyway. */
const WAIT_MS_MAX = 500;
/** An end of a partition that was seen so long ago is asked for anew. */
const END_AGE_MS_MAX = 2_000;

/** Nothing to wait for: whoever starts again finds the new topic. */
export class TopicReplacedError extends Error {
  override readonly name = 'TopicReplacedError';
}

export class KafkaGroupReader extends KafkaLogReader {
  readonly #membership: Membership;
  readonly #ahead: ReadAhead;
  readonly #ends = new Map<number, { readonly end: number; readonly at: number }>();
  #ours: ReadonlySet<number> = new Set();

  /** `aheadCluster` is for reading ahead alone. */
  constructor(setup: ReaderSetup, aheadCluster: Cluster) {
    super(setup);
    const { cluster, topicId, group } = setup;
    this.#ahead = new ReadAhead(aheadCluster, topicId, (partition, { messages, end }) => {
      this.noteSeen(messages);
      this.#ends.set(partition, { end, at: performance.now() });
    });
    const onChange = (partitions: ReadonlySet<number>): void => {
      this.#ours = partitions;
      this.#ahead.keepOnly(partitions);
    };
    this.#membership = new Membership({ cluster, topicId, group, onChange });
  }

  join(): Promise<void> {
    return this.#membership.join();
  }

  override async partitions(): Promise<number[]> {
    const { cluster, topicId } = this.setup;
    if (isReplaced(cluster.known, topicId)) throw new TopicReplacedError(replacedWords(cluster));
    return this.#membership.partitions();
  }

  override async read(partition: number, position: number, bytesMax: number): Promise<LogBatch> {
    if (!this.#ours.has(partition)) return super.read(partition, position, bytesMax);
    let messages = this.#ahead.peek(partition, position);
    if (messages === undefined) {
      const run = await this.fetchAt(partition, position);
      this.noteSeen(run.messages);
      if (!this.#ours.has(partition)) return { records: [], next: position };
      this.#ahead.put(partition, position, run);
      messages = this.#ahead.peek(partition, position) ?? [];
    }
    const { records, count } = recordsOf(messages, partition, bytesMax);
    return { records, next: count === 0 ? position : this.#ahead.use(partition, count) };
  }

  /** Resolves when there is more to read, or other partitions to read from; after a moment anyway. */
  waitForMore(): Promise<void> {
    return this.#ahead.arrival(WAIT_MS_MAX);
  }

  override async close(): Promise<void> {
    await this.#membership.close();
    await this.#ahead.close();
    await super.close();
  }

  protected override membership(): GroupMembership {
    return this.#membership.current;
  }

  protected override async endOf(partition: number): Promise<number> {
    const seen = this.#ends.get(partition);
    if (seen !== undefined && performance.now() - seen.at < END_AGE_MS_MAX) return seen.end;
    return super.endOf(partition);
  }
}
