/**
 * The topic that is the log: made if it is missing, and refused if what is acknowledged there could be lost. Several
 * servers may do this at once; whoever comes second takes the topic of the first. Settings of a topic that exists are
 * never changed from here: they are an operator's.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { createTopicsV7, describeConfigsV4 } from '@platformatic/kafka';
import { OperatorError } from '../../errors.ts';
import { LIMITS } from '../../model.ts';
import { LogAwayError, LogUnavailableError } from '../../log.ts';
import type { Cluster, ClusterView } from './cluster.ts';
import { answered, CODE, LoginRefusedError, wordsOf } from './codes.ts';

export interface TopicFacts {
  readonly id: string;
  readonly partitions: number;
  readonly inSyncMin: number;
}

export interface TopicOptions {
  /** How long processed records are kept. */
  readonly retentionMs: number;
  readonly warn: (message: string) => void;
  /** True for who only looks: a topic that is not safe is then told of, not refused. */
  readonly isLooking?: boolean;
  /** False for who must leave nothing behind: a topic that is missing is then refused, not made. */
  readonly makesTopic?: boolean;
  /** How long a cluster that is starting too is waited for. */
  readonly openMsMax?: number;
  /** The same for one that does not respond at all; as long as any unless given. */
  readonly awayMsMax?: number;
}

export const PARTITIONS_DEFAULT = 12;
const REPLICATION_DEFAULT = 3;
/** Of a user: a whole body, with what is said about it; rejections may quote much of it. */
const MESSAGE_BYTES = 32 * 1024 * 1024;
const MESSAGE_BYTES_MIN = LIMITS.bodyBytesMax + 1024 * 1024;
const OPEN_MS_MAX = 20_000;
const RETRY_MS = 250;
const CREATE_MS_MAX = 8_000;
const TOPIC_RESOURCE = 2;

export async function openTopic(cluster: Cluster, options: TopicOptions): Promise<TopicFacts> {
  const view = await patiently(cluster, options, async () => {
    const seen = await cluster.refresh();
    if (seen.topicId === null && options.makesTopic === false) {
      throw new OperatorError(`There is no topic ${cluster.topic} yet: no server has run on it. Is LOG_URL right?`);
    }
    if (seen.topicId === null) await makeTopic(cluster, seen);
    return isComplete(seen) ? seen : undefined;
  });
  const settings = await patiently(cluster, options, () => settingsOf(cluster));
  const replication = Math.min(...view.partitions.map(({ replicas }) => replicas.length));
  const { refusals, warnings } = judgeTopic(settings, { replication, retentionMs: options.retentionMs });
  const { topic, partitions: wanted } = cluster.address;
  if (refusals.length > 0 && options.isLooking !== true) {
    throw new OperatorError(`The topic ${topic} is not safe for events: ${refusals.join('; ')}.`);
  }
  if (wanted !== null && wanted !== view.partitions.length) {
    warnings.push(
      `it has ${view.partitions.length} partitions, not the ${wanted} of LOG_URL, which are for a new topic`,
    );
  }
  for (const warning of [...refusals, ...warnings]) options.warn(`topic ${topic}: ${warning}`);
  return {
    id: view.topicId ?? '',
    partitions: view.partitions.length,
    inSyncMin: Number(settings.get('min.insync.replicas') ?? 1),
  };
}

/** What is wrong with the settings of a topic, each with what to do. Pure. */
export function judgeTopic(
  settings: ReadonlyMap<string, string>,
  { replication, retentionMs }: { readonly replication: number; readonly retentionMs: number },
): { readonly refusals: string[]; readonly warnings: string[] } {
  const refusals: string[] = [];
  const warnings: string[] = [];
  const number = (name: string, otherwise: number): number => Number(settings.get(name) ?? otherwise);
  const inSyncMin = number('min.insync.replicas', 1);
  if (replication >= 2 && inSyncMin < 2) {
    refusals.push(
      `min.insync.replicas is ${inSyncMin} with ${replication} replicas, so that an event may be acknowledged which only one broker has; set it to 2`,
    );
  }
  if (inSyncMin > replication) {
    refusals.push(`min.insync.replicas is ${inSyncMin} with ${replication} replicas, so that nothing can be written`);
  }
  if (settings.get('unclean.leader.election.enable') === 'true') {
    refusals.push(
      'unclean.leader.election.enable is true, so that acknowledged events are lost when a broker that missed them takes over; set it to false',
    );
  }
  if ((settings.get('cleanup.policy') ?? 'delete').includes('compact')) {
    refusals.push('cleanup.policy is compact, which removes events; set it to delete');
  }
  const messageBytes = number('max.message.bytes', 0);
  if (messageBytes < MESSAGE_BYTES_MIN) {
    refusals.push(
      `max.message.bytes is ${messageBytes}, too little for a user of 10 MB; set it to ${MESSAGE_BYTES} (at least ${MESSAGE_BYTES_MIN})`,
    );
  }
  const kept = number('retention.ms', -1);
  if (kept >= 0 && kept < retentionMs) {
    refusals.push(
      `retention.ms is ${kept}, less than the log is to be kept (${retentionMs}); set it to -1: Sluice removes what is processed and old enough`,
    );
  } else if (kept >= 0) {
    warnings.push(
      `retention.ms is ${kept}: what waits longer than that to be processed is lost; set it to -1: Sluice removes what is processed and old enough`,
    );
  }
  if (number('retention.bytes', -1) >= 0) {
    refusals.push('retention.bytes is set, which removes events that may not be processed yet; set it to -1');
  }
  if (replication === 1) {
    warnings.push('it has one replica: a broker that loses its disk loses events that were acknowledged');
    if (number('flush.messages', 2) !== 1) {
      warnings.push('flush.messages is not 1: a broker that loses power loses events that were acknowledged');
    }
  } else if (inSyncMin === replication) {
    warnings.push(`min.insync.replicas is ${inSyncMin}, all replicas: no broker may fail without events being refused`);
  }
  return { refusals, warnings };
}

function isComplete({ topicId, partitions }: ClusterView): boolean {
  return topicId !== null && partitions.length > 0 && partitions.every(({ leader }) => leader >= 0);
}

async function makeTopic(cluster: Cluster, { brokers }: ClusterView): Promise<void> {
  const { address, topic } = cluster;
  const replication = address.replication ?? Math.min(REPLICATION_DEFAULT, brokers.size);
  const wanted = {
    name: topic,
    numPartitions: address.partitions ?? PARTITIONS_DEFAULT,
    replicationFactor: replication,
    assignments: [],
    configs: [
      { name: 'min.insync.replicas', value: replication === 1 ? '1' : '2' },
      { name: 'cleanup.policy', value: 'delete' },
      { name: 'retention.ms', value: '-1' },
      { name: 'retention.bytes', value: '-1' },
      { name: 'unclean.leader.election.enable', value: 'false' },
      { name: 'max.message.bytes', value: String(MESSAGE_BYTES) },
      // A server whose clock is ahead is no reason to refuse events.
      { name: 'message.timestamp.after.max.ms', value: '9223372036854775807' },
      // With one replica the disk is all there is.
      ...(replication === 1 ? [{ name: 'flush.messages', value: '1' }] : []),
    ],
  };
  const { topics } = await answered(createTopicsV7.api.async(await cluster.any(), [wanted], CREATE_MS_MAX, false));
  const [made] = topics;
  const code = made?.errorCode ?? CODE.none;
  if (code === CODE.none || code === CODE.topic_already_exists) return;
  const why = `${wordsOf(code)}${made?.errorMessage ? `: ${made.errorMessage}` : ''}`;
  if (code === CODE.invalid_replication_factor) {
    throw new OperatorError(
      `The topic ${topic} cannot be made with ${replication} replicas on ${brokers.size} brokers; change replication in LOG_URL (${why}).`,
    );
  }
  if (code === CODE.topic_authorization_failed || code === CODE.cluster_authorization_failed) {
    const settings = wanted.configs.map(({ name, value }) => `${name}=${value}`).join(' ');
    throw new OperatorError(
      `The topic ${topic} does not exist and this user may not make it (${why}). Make it with ${wanted.numPartitions} partitions, ${replication} replicas and ${settings}.`,
    );
  }
  throw new LogUnavailableError(`the topic ${topic} cannot be made: ${why}`);
}

async function settingsOf(cluster: Cluster): Promise<Map<string, string> | undefined> {
  const asked = [{ resourceType: TOPIC_RESOURCE, resourceName: cluster.topic, configurationKeys: null }] as const;
  const { results } = await answered(describeConfigsV4.api.async(await cluster.any(), [...asked], false, false));
  const [result] = results;
  if (result?.errorCode === CODE.topic_authorization_failed) {
    throw new OperatorError(
      `The settings of the topic ${cluster.topic} cannot be checked: allow this user DescribeConfigs on it.`,
    );
  }
  // A broker may not have heard of a new topic yet.
  if (result === undefined || result.errorCode !== CODE.none) return undefined;
  return new Map(result.configs.map(({ name, value }) => [name, value ?? '']));
}

/** Until there is a response. A mistake of the operator ends it at once. */
async function patiently<Found>(
  cluster: Cluster,
  { openMsMax = OPEN_MS_MAX, awayMsMax = openMsMax }: TopicOptions,
  look: () => Promise<Found | undefined>,
): Promise<Found> {
  const begin = performance.now();
  let problem = 'it does not respond';
  let msMax = openMsMax;
  do {
    try {
      const found = await look();
      if (found !== undefined) return found;
      problem = `the topic ${cluster.topic} is not ready`;
      msMax = openMsMax;
    } catch (error) {
      if (error instanceof OperatorError) throw error;
      if (error instanceof LoginRefusedError) throw new OperatorError(`${error.message}. Check LOG_URL.`);
      problem = error instanceof Error ? error.message : String(error);
      msMax = Math.min(openMsMax, awayMsMax);
    }
    await sleep(RETRY_MS);
  } while (performance.now() - begin < msMax);
  const brokers = cluster.address.brokers.map(({ host, port }) => `${host}:${port}`).join(', ');
  throw new LogAwayError(`Kafka at ${brokers} cannot be used: ${problem}. Check LOG_URL and that Kafka runs.`, {
    cause: new Error(problem),
  });
}
