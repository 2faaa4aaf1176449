/**
 * The write side of the log: splits requests into users, produces them, and knows whether Kafka accepts data. After an
 * append has timed out, appends are rejected immediately until a check finds the cluster healthy: every partition has a
 * leader and enough in-sync replicas, all of them reachable, and this user may write. A lost connection triggers the
 * same check, so that a problem is known before a request has to wait for it. So does a timer: an edge without requests
 * would not notice that the topic was deleted or the right to write revoked, and stay ready.
 *
 * No error is fatal: Kafka keeps what it has acknowledged.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { murmur2 } from '@platformatic/kafka';
import { type LogAppender, type LogEntry, LogUnavailableError } from '../../log.ts';
import { METRIC, type MetricsWriter } from '../../telemetry/metrics.ts';
import type { Cluster, ClusterMetadata } from './cluster.ts';
import { errorText } from './errors.ts';
import { messagesOf } from './message.ts';
import { APPEND_MS_MAX, Producer } from './producer.ts';

const CHECK_INTERVAL_MS = 500;
const HEALTHY_CHECK_INTERVAL_MS = 10_000;

interface AppenderSetup {
  readonly cluster: Cluster;
  /** min.insync.replicas */
  readonly inSyncMin: number;
  readonly warn: (message: string) => void;
  readonly partitionOf: (key: Buffer, partitions: number) => number;
  readonly metrics: MetricsWriter | null;
}

/** The default partitioner of Kafka's Java client. */
export function partitionOfKey(key: Buffer, partitions: number): number {
  return (murmur2(key) & 0x7fff_ffff) % partitions;
}

export class KafkaLogAppender implements LogAppender {
  readonly #setup: AppenderSetup;
  readonly #producer: Producer;
  readonly #checks: NodeJS.Timeout;
  #problem: string | null = null;
  /** By `performance.now`. */
  #unhealthySince: number | null = null;
  #isChecking = false;
  #closed: Promise<void> | null = null;

  constructor(setup: AppenderSetup) {
    this.#setup = setup;
    this.#producer = new Producer({
      cluster: setup.cluster,
      onTimeout: (reason) => {
        this.#problem = `Kafka does not accept data: ${reason}`;
        void this.#checkCluster();
      },
      onRejected: setup.warn,
      onProduced: (seconds) => setup.metrics?.observe(METRIC.log_commit_duration, seconds),
    });
    setup.cluster.onDisconnect(() => void this.#checkCluster());
    this.#checks = setInterval(() => void this.#checkCluster(), HEALTHY_CHECK_INTERVAL_MS).unref();
    // Or an edge that starts during an outage is ready until a request finds out.
    void this.#checkCluster();
  }

  async append(entry: LogEntry): Promise<void> {
    if (this.#problem !== null || this.#closed !== null) {
      throw new LogUnavailableError(this.#problem ?? 'the log is closed');
    }
    const { cluster, partitionOf, metrics } = this.#setup;
    const partitions = cluster.cachedMetadata?.partitions.length ?? 1;
    const bytes = entry.body.byteLength;
    const messages = messagesOf(entry);
    await this.#producer.send(
      messages.map((message) => ({ partition: partitionOf(message.key, partitions), message })),
    );
    metrics?.inc(METRIC.log_entries);
    metrics?.inc(METRIC.log_bytes, bytes);
  }

  problem(): string | null {
    return this.#problem;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    clearInterval(this.#checks);
    await this.#producer.flush();
    this.#producer.stop();
    await this.#setup.cluster.close();
  }

  /** Repeats until the cluster is healthy. */
  async #checkCluster(): Promise<void> {
    if (this.#isChecking) return;
    this.#isChecking = true;
    while (this.#closed === null) {
      const problem = await this.#findProblem();
      if (problem === null) {
        this.#unhealthySince = null;
        this.#problem = null;
        break;
      }
      const now = performance.now();
      this.#unhealthySince ??= now;
      // A leader may be missing for a moment: appends may still succeed before their deadline.
      if (this.#problem !== null || now - this.#unhealthySince >= APPEND_MS_MAX) {
        this.#problem = `Kafka does not accept data: ${problem}`;
      }
      await sleep(CHECK_INTERVAL_MS, undefined, { ref: false });
    }
    this.#isChecking = false;
  }

  async #findProblem(): Promise<string | null> {
    const { cluster, inSyncMin } = this.#setup;
    try {
      const metadata = await cluster.refresh();
      const problem = problemOf(metadata, inSyncMin);
      if (problem !== null) return problem;
      const needed = new Set(metadata.partitions.flatMap(({ inSync }) => inSync));
      await Promise.all([...needed].map((broker) => cluster.connection(broker)));
      return null;
    } catch (error) {
      return errorText(error);
    }
  }
}

function problemOf({ topicId, partitions, mayWrite }: ClusterMetadata, inSyncMin: number): string | null {
  if (topicId === null) return 'the topic does not exist';
  if (!mayWrite) return 'this user lacks the right to write to the topic (Write)';
  for (const [partition, { leader, inSync }] of partitions.entries()) {
    if (leader < 0) return `partition ${partition} has no leader`;
    if (inSync.length < inSyncMin) {
      return `partition ${partition} has ${inSync.length} of ${inSyncMin} required in-sync replicas`;
    }
  }
  return null;
}
