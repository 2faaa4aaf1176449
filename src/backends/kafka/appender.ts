/**
 * The appending half of the log: cuts requests into users, sends them, and knows whether Kafka takes data now. After
 * somebody waited in vain, appends are refused at once, until a look at the cluster finds it whole: every partition has a
 * leader and enough replicas in sync, and all of those can be reached. The same look follows a lost connection, so that
 * problem is known before somebody waits for it. Without problem nothing runs on its own.
 *
 * There are no fatal errors: what Kafka holds is Kafka's to keep.
 */

import { murmur2 } from '@platformatic/kafka';
import { type LogAppender, type LogEntry, LogUnavailableError } from '../../log.ts';
import type { Cluster, ClusterView } from './cluster.ts';
import { reasonOf } from './codes.ts';
import { messagesOf } from './message.ts';
import { APPEND_MS_MAX, Producer } from './producer.ts';

const LOOK_INTERVAL_MS = 500;

export interface AppenderSetup {
  readonly cluster: Cluster;
  /** How many replicas Kafka wants in sync before it takes anything. */
  readonly inSyncMin: number;
  readonly warn: (message: string) => void;
  readonly partitionOf: (key: Buffer, partitions: number) => number;
  /** Called with the size of a body that is durable now. */
  readonly onAppended: (bytes: number) => void;
  /** Called with the time that a produce request took. */
  readonly onBatches: (seconds: number) => void;
}

/** As Kafka's own clients do it. */
export function partitionOfKey(key: Buffer, partitions: number): number {
  return (murmur2(key) & 0x7fff_ffff) % partitions;
}

export class KafkaLogAppender implements LogAppender {
  readonly #setup: AppenderSetup;
  readonly #producer: Producer;
  #problem: string | null = null;
  /** Since when the cluster is known not to be whole; by `performance.now`. */
  #brokenSince: number | null = null;
  #looking: NodeJS.Timeout | 'now' | null = null;
  #closed: Promise<void> | null = null;

  constructor(setup: AppenderSetup) {
    this.#setup = setup;
    this.#producer = new Producer({
      cluster: setup.cluster,
      onLate: (reason) => {
        this.#problem = `Kafka does not take data: ${reason}`;
        this.#look();
      },
      onRefused: setup.warn,
      onBatches: setup.onBatches,
    });
    setup.cluster.onDisconnect(() => this.#look());
  }

  append(entry: LogEntry): Promise<void> {
    if (this.#problem !== null || this.#closed !== null) {
      return Promise.reject(new LogUnavailableError(this.#problem ?? 'the log is closed'));
    }
    return this.#send(entry);
  }

  problem(): string | null {
    return this.#problem;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    await this.#producer.settled();
    this.#producer.stop();
    if (typeof this.#looking === 'object' && this.#looking !== null) clearTimeout(this.#looking);
    await this.#setup.cluster.close();
  }

  async #send(entry: LogEntry): Promise<void> {
    const { cluster, partitionOf, onAppended } = this.#setup;
    const partitions = cluster.known?.partitions.length ?? 1;
    const bytes = entry.body.byteLength;
    const messages = messagesOf(entry);
    await this.#producer.send(
      messages.map((message) => ({ partition: partitionOf(message.key, partitions), message })),
    );
    onAppended(bytes);
  }

  /** Until the cluster is whole. */
  #look(): void {
    if (this.#looking !== null || this.#closed !== null) return;
    this.#looking = 'now';
    void this.#whatIsBroken().then((broken) => {
      this.#looking = null;
      if (broken === null) {
        this.#brokenSince = null;
        this.#problem = null;
        return;
      }
      const now = performance.now();
      this.#brokenSince ??= now;
      // For a moment a leader may be missing: whoever appends then may well be served in time.
      if (this.#problem !== null || now - this.#brokenSince >= APPEND_MS_MAX) {
        this.#problem = `Kafka does not take data: ${broken}`;
      }
      if (this.#closed !== null) return;
      this.#looking = setTimeout(() => {
        this.#looking = null;
        this.#look();
      }, LOOK_INTERVAL_MS);
    });
  }

  async #whatIsBroken(): Promise<string | null> {
    const { cluster, inSyncMin } = this.#setup;
    try {
      const view = await cluster.refresh();
      const problem = problemOf(view, inSyncMin);
      if (problem !== null) return problem;
      const needed = new Set(view.partitions.flatMap(({ inSync }) => inSync));
      await Promise.all([...needed].map((broker) => cluster.connection(broker)));
      return null;
    } catch (error) {
      return reasonOf(error);
    }
  }
}

function problemOf({ topicId, partitions }: ClusterView, inSyncMin: number): string | null {
  if (topicId === null) return 'the topic is gone';
  for (const [partition, { leader, inSync }] of partitions.entries()) {
    if (leader < 0) return `partition ${partition} has no leader`;
    if (inSync.length < inSyncMin) {
      return `partition ${partition} has ${inSync.length} of ${inSyncMin} replicas in sync`;
    }
  }
  return null;
}
