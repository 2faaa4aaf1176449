/** The event log's contract on Kafka. What is peculiar to Kafka is in `test/backends/kafka`. */

import { openKafkaLogAppender, openKafkaLogReader } from '../../src/backends/kafka/log.ts';
import { testKafka, whyNoKafka } from '../servers/kafka.ts';
import type { LogUnderTest } from './log-entries.ts';
import { eventLogContract } from './log.ts';

/** A topic of its own, with a partition more than the suite writes to. */
async function kafkaLog(): Promise<LogUnderTest> {
  const { brokers, newTopicName } = await testKafka();
  const url = `kafka://${brokers}/${newTopicName()}?replication=1&partitions=3`;
  return {
    hasPartitions: true,
    openAppender: (partition) =>
      openKafkaLogAppender({ url, retentionMs: Number.MAX_SAFE_INTEGER, partitionOf: () => partition }),
    openReader: ({ retentionMs = Number.MAX_SAFE_INTEGER, now = Date.now } = {}) =>
      openKafkaLogReader({ url, retentionMs, now }),
    // The server goes away as a whole.
    dispose: () => Promise.resolve(),
  };
}

eventLogContract('Kafka', kafkaLog, whyNoKafka());
