/**
 * The event log on Kafka: opens its two halves. Each checks the topic first, and creates it if it is missing, so servers
 * may start in any order. The appender splits requests into users (`appender.ts`); `reader.ts` reads all partitions, and
 * `group-reader.ts` those that the consumer group of the processors assigned to it.
 */

import type { LogAppender } from '../../log.ts';
import { metricsWriter } from '../../telemetry/metrics.ts';
import { KafkaLogAppender, partitionOfKey } from './appender.ts';
import { Cluster } from './cluster.ts';
import { KafkaGroupReader } from './group-reader.ts';
import { groupName } from './group-offsets.ts';
import { KafkaLogReader, type ReaderSetup } from './reader.ts';
import { openTopic, type TopicInfo, type TopicOptions } from './topic.ts';
import { parseKafkaUrl } from './url.ts';

export type { KafkaGroupReader } from './group-reader.ts';
export { NoTopicError } from './topic.ts';

const CLIENT_NAME = 'sluice';
/** A little more than the deadline of an append. */
const PRODUCE_MS_MAX = 6_000;

interface KafkaLogSetup extends Omit<TopicOptions, 'isReadOnly'> {
  /** LOG_URL. */
  readonly url: string;
}

export interface KafkaAppenderSetup extends KafkaLogSetup {
  readonly metrics?: { readonly buffer: SharedArrayBuffer; readonly slot: number } | null;
  /** The default is that of Kafka's Java client. */
  readonly partitionOf?: (key: Buffer, partitions: number) => number;
}

export interface KafkaReaderSetup extends KafkaLogSetup {
  readonly now?: () => number;
  /**
   * Database that is written from this log. It is part of the consumer group's name: the processors of one database
   * share the partitions; those of another database have a group of their own.
   */
  readonly databaseId?: string;
}

export async function openKafkaLogAppender(setup: KafkaAppenderSetup): Promise<LogAppender> {
  const cluster = new Cluster(parseKafkaUrl(setup.url), CLIENT_NAME, PRODUCE_MS_MAX);
  const { inSyncMin } = await openOrClose(cluster, setup);
  return new KafkaLogAppender({
    cluster,
    inSyncMin,
    warn: setup.warn ?? (() => undefined),
    partitionOf: setup.partitionOf ?? partitionOfKey,
    metrics: setup.metrics ? metricsWriter(setup.metrics.buffer, setup.metrics.slot) : null,
  });
}

/** Reads all partitions, outside the group, and, if `isReadOnly`, accepts a topic that is not safe for writing. */
export async function openKafkaLogReader(setup: KafkaReaderSetup, isReadOnly = true): Promise<KafkaLogReader> {
  return new KafkaLogReader(await openForReading(setup, isReadOnly));
}

/** A member of the consumer group. Its partitions may be assigned a moment later. */
export async function openKafkaGroupReader(setup: KafkaReaderSetup): Promise<KafkaGroupReader> {
  const readerSetup = await openForReading(setup, false);
  const reader = new KafkaGroupReader(readerSetup, new Cluster(readerSetup.cluster.address, CLIENT_NAME));
  try {
    await reader.join();
  } catch (error) {
    await reader.close();
    throw error;
  }
  return reader;
}

async function openForReading(setup: KafkaReaderSetup, isReadOnly: boolean): Promise<ReaderSetup> {
  const { url, retentionMs, now = Date.now, warn = () => undefined } = setup;
  const cluster = new Cluster(parseKafkaUrl(url), CLIENT_NAME);
  const { id } = await openOrClose(cluster, setup, isReadOnly);
  const group = groupName(cluster.topic, setup.databaseId);
  return { cluster, topicId: id, group, retentionMs, now, warn, skipsRemoved: isReadOnly };
}

async function openOrClose(cluster: Cluster, setup: KafkaLogSetup, isReadOnly = false): Promise<TopicInfo> {
  try {
    return await openTopic(cluster, { ...setup, isReadOnly });
  } catch (error) {
    await cluster.close();
    throw error;
  }
}
