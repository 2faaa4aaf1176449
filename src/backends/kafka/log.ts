/**
 * The event log on Kafka: opens its halves. Each checks the topic first, or makes it, so that whoever starts first may do
 * so. The appender cuts requests into users (`appender.ts`), one reader sees all partitions (`reader.ts`), and one those
 * that are its own in a group of processors (`group-reader.ts`).
 */

import type { LogAppender, LogReader } from '../../log.ts';
import { METRIC, metricsWriter } from '../../telemetry/metrics.ts';
import { KafkaLogAppender, partitionOfKey } from './appender.ts';
import { Cluster } from './cluster.ts';
import { nameOfLog } from './fetch.ts';
import { KafkaGroupReader } from './group-reader.ts';
import { groupName } from './other-groups.ts';
import { KafkaLogReader, type ReaderSetup } from './reader.ts';
import { openTopic, type TopicFacts } from './topic.ts';
import { parseKafkaUrl } from './url.ts';

export type { KafkaGroupReader } from './group-reader.ts';

const CLIENT_NAME = 'sluice';
/** A little more than anybody waits for an append. */
const PRODUCE_MS_MAX = 6_000;

export interface KafkaLogSetup {
  /** LOG_URL. */
  readonly url: string;
  /** How long processed records are kept at least. */
  readonly retentionMs: number;
  /** For what an operator should know and nothing is refused for. */
  readonly warn?: (message: string) => void;
  /** How long a cluster that is starting too is waited for. */
  readonly openMsMax?: number;
  /** The same for one that does not respond at all. */
  readonly awayMsMax?: number;
  /** False: a topic that is missing is refused, not made. */
  readonly makesTopic?: boolean;
}

export interface KafkaAppenderSetup extends KafkaLogSetup {
  readonly metrics?: { readonly buffer: SharedArrayBuffer; readonly slot: number } | null;
  /** Which partition a key belongs to; as Kafka's own clients do it unless given. */
  readonly partitionOf?: (key: Buffer, partitions: number) => number;
}

export interface KafkaReaderSetup extends KafkaLogSetup {
  readonly now?: () => number;
  /**
   * Of the store that is written from this log. It is in the name of the consumer group: processors of one database share
   * the partitions among themselves, those of another one have all of them, too.
   */
  readonly databaseId?: string;
}

export async function openKafkaLogAppender(setup: KafkaAppenderSetup): Promise<LogAppender> {
  const cluster = new Cluster(parseKafkaUrl(setup.url), CLIENT_NAME, PRODUCE_MS_MAX);
  const { inSyncMin } = await checked(cluster, setup);
  const metrics = setup.metrics ? metricsWriter(setup.metrics.buffer, setup.metrics.slot) : null;
  return new KafkaLogAppender({
    cluster,
    inSyncMin,
    warn: setup.warn ?? (() => undefined),
    partitionOf: setup.partitionOf ?? partitionOfKey,
    onAppended: (bytes) => {
      metrics?.inc(METRIC.log_entries);
      metrics?.inc(METRIC.log_bytes, bytes);
    },
    onBatches: (seconds) => {
      metrics?.inc(METRIC.log_commits);
      metrics?.observe(METRIC.log_commit_duration, seconds);
    },
  });
}

/** Checks the topic, and makes it if it is missing. `isLooking` for who only reads. Returns the name of the log. */
export async function prepareKafkaLog(setup: KafkaLogSetup, isLooking: boolean): Promise<string> {
  const cluster = new Cluster(parseKafkaUrl(setup.url), CLIENT_NAME);
  const { id } = await checked(cluster, setup, isLooking);
  await cluster.close();
  return nameOfLog(id);
}

/** Sees all partitions. Takes no part in the group, and looks at a topic that would be refused for writing, too. */
export async function openKafkaLogReader(setup: KafkaReaderSetup): Promise<LogReader> {
  return new KafkaLogReader(await openForReading(setup, true));
}

/** A member of the group of processors. Partitions may become its own only a moment later. */
export async function openKafkaGroupReader(setup: KafkaReaderSetup): Promise<KafkaGroupReader> {
  const readerSetup = await openForReading(setup, false);
  const aheadCluster = new Cluster(readerSetup.cluster.address, CLIENT_NAME);
  const reader = new KafkaGroupReader(readerSetup, aheadCluster);
  try {
    await aheadCluster.refresh();
    await reader.join();
  } catch (error) {
    await reader.close();
    throw error;
  }
  return reader;
}

async function openForReading(setup: KafkaReaderSetup, isLooking: boolean): Promise<ReaderSetup> {
  const { url, retentionMs, now = Date.now, warn = () => undefined } = setup;
  const cluster = new Cluster(parseKafkaUrl(url), CLIENT_NAME);
  const { id } = await checked(cluster, setup, isLooking);
  const group = groupName(cluster.topic, setup.databaseId);
  return { cluster, topicId: id, group, retentionMs, now, warn, skipsRemoved: isLooking };
}

async function checked(cluster: Cluster, setup: KafkaLogSetup, isLooking = false): Promise<TopicFacts> {
  const { retentionMs, warn = () => undefined, openMsMax, awayMsMax, makesTopic = true } = setup;
  const patience = { ...(openMsMax !== undefined && { openMsMax }), ...(awayMsMax !== undefined && { awayMsMax }) };
  try {
    return await openTopic(cluster, { retentionMs, warn, isLooking, makesTopic, ...patience });
  } catch (error) {
    await cluster.close();
    throw error;
  }
}
