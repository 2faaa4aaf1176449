/** Joining the consumer group: errors that `join` throws, and those that are retried later. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection } from '@platformatic/kafka';
import { Cluster } from '../../../src/backends/kafka/cluster.ts';
import { Membership } from '../../../src/backends/kafka/membership.ts';
import { parseKafkaUrl } from '../../../src/backends/kafka/url.ts';
import { OperatorError } from '../../../src/errors.ts';
import { LogUnavailableError } from '../../../src/log.ts';
import { eventually } from '../../server.ts';

const UNUSED_URL = 'kafka://127.0.0.1:1/topic';

/** A cluster whose coordinator fails with a given error. */
class FailingCluster extends Cluster {
  problem: Error = new LogUnavailableError('away');
  asked = 0;

  override async coordinator(): Promise<Connection> {
    this.asked += 1;
    throw this.problem;
  }
}

function membershipOn(cluster: Cluster): Membership {
  return new Membership({ cluster, topicId: 'topic-id', group: 'group', onChange: () => undefined, joinMsMax: 0 });
}

test('`join` throws an operator error, and the membership can be closed then', async (context) => {
  const cluster = new FailingCluster(parseKafkaUrl(UNUSED_URL), 'test');
  context.after(() => cluster.close());
  cluster.problem = new OperatorError('Kafka is too old');
  const membership = membershipOn(cluster);
  await assert.rejects(membership.join(), cluster.problem);
  await membership.close();
});

test('an operator error after `join` timed out is reported like any problem, and does not end the process', async (context) => {
  const cluster = new FailingCluster(parseKafkaUrl(UNUSED_URL), 'test');
  context.after(() => cluster.close());
  const unhandled: unknown[] = [];
  const note = (reason: unknown): void => void unhandled.push(reason);
  process.on('unhandledRejection', note);
  context.after(() => process.off('unhandledRejection', note));
  const membership = membershipOn(cluster);
  await membership.join();
  assert.throws(() => membership.partitions(), { name: 'LogUnavailableError', message: /away/ });
  cluster.problem = new OperatorError('Kafka is too old');
  const before = cluster.asked;
  await eventually('it is retried', () => cluster.asked >= before + 2);
  await sleep(0);
  assert.throws(() => membership.partitions(), { name: 'LogUnavailableError', message: /Kafka is too old/ });
  await membership.close();
  assert.deepEqual(unhandled, []);
});
