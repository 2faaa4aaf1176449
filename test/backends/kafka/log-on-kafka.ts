/** Shared by the tests of the log on Kafka: topics with given settings, and appenders and readers that close with the test. */

import type { TestContext } from 'node:test';
import { Admin } from '@platformatic/kafka';
import {
  type KafkaAppenderSetup,
  type KafkaGroupReader,
  type KafkaReaderSetup,
  openKafkaGroupReader,
  openKafkaLogAppender,
  openKafkaLogReader,
} from '../../../src/backends/kafka/log.ts';
import type { KafkaLogReader } from '../../../src/backends/kafka/reader.ts';
import type { LogAppender } from '../../../src/log.ts';

export const KEPT_MS = 3_600_000;

/** What a safe topic needs, besides its replicas. */
export const SAFE_SETTINGS = {
  'max.message.bytes': '33554432',
  'retention.ms': '-1',
  'cleanup.policy': 'delete',
  'unclean.leader.election.enable': 'false',
};

export async function createTopic(
  brokers: string,
  topic: string,
  {
    settings = {},
    replicas = 1,
    partitions = 1,
  }: { settings?: Record<string, string>; replicas?: number; partitions?: number } = {},
): Promise<void> {
  const admin = new Admin({ clientId: 'test', bootstrapBrokers: brokers.split(',') });
  const configs = Object.entries({ ...SAFE_SETTINGS, ...settings }).map(([name, value]) => ({ name, value }));
  await admin.createTopics({ topics: [topic], partitions, replicas, configs });
  await admin.close();
}

/** Closes when the test ends; closing twice does nothing. */
export async function appenderOf(
  context: TestContext,
  setup: Partial<KafkaAppenderSetup> & { url: string },
): Promise<LogAppender> {
  const appender = await openKafkaLogAppender({ retentionMs: KEPT_MS, ...setup });
  context.after(() => appender.close());
  return appender;
}

export async function readerOf(
  context: TestContext,
  setup: Partial<KafkaReaderSetup> & { url: string },
): Promise<KafkaLogReader> {
  const reader = await openKafkaLogReader({ retentionMs: KEPT_MS, ...setup });
  context.after(() => reader.close());
  return reader;
}

export async function groupReaderOf(
  context: TestContext,
  setup: Partial<KafkaReaderSetup> & { url: string },
): Promise<KafkaGroupReader> {
  const reader = await openKafkaGroupReader({ retentionMs: KEPT_MS, ...setup });
  context.after(() => reader.close());
  return reader;
}
