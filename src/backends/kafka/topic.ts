/**
 * The topic that is the log: created if it is missing, and refused if acknowledged events could be lost there. Several
 * servers may do this at once; one of them creates the topic, the others use it. The settings of an existing topic are
 * the operator's and never changed here.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { createTopicsV7, describeConfigsV4 } from '@platformatic/kafka';
import { messageOf, OperatorError } from '../../errors.ts';
import { LIMITS } from '../../model.ts';
import { LogUnreachableError, LogUnavailableError } from '../../log.ts';
import type { Cluster, ClusterMetadata } from './cluster.ts';
import { responseOf, CODE, LoginFailedError, describeCode } from './errors.ts';

export class NoTopicError extends OperatorError {}

export interface TopicInfo {
  readonly id: string;
  readonly inSyncMin: number;
}

export interface TopicOptions {
  /** How long processed records are kept at least. */
  readonly retentionMs: number;
  /** Receives warnings for the operator. */
  readonly warn?: (message: string) => void;
  /** True for readers: an unsafe topic is then a warning, not an error. */
  readonly isReadOnly?: boolean;
  /** False: a missing topic is an error. */
  readonly createsTopic?: boolean;
  /** How long to wait for a cluster that is starting. */
  readonly openMsMax?: number;
  /** The same for a cluster that does not respond at all; `openMsMax` by default. */
  readonly unreachableMsMax?: number;
}

export const PARTITIONS_DEFAULT = 12;
/** However many brokers are up: those that are down, or start later, cannot be counted. */
const REPLICATION_DEFAULT = 3;
/** Limit of one user's message: a whole body and its header; a rejection may quote much of it. */
const MESSAGE_BYTES = 32 * 1024 * 1024;
const MESSAGE_BYTES_MIN = LIMITS.bodyBytesMax + 1024 * 1024;
const OPEN_MS_MAX = 20_000;
const RETRY_MS = 250;
const CREATE_MS_MAX = 8_000;
const TOPIC_RESOURCE = 2;

export async function openTopic(cluster: Cluster, options: TopicOptions): Promise<TopicInfo> {
  const metadata = await untilReady(cluster, options, async () => {
    const seen = await cluster.refresh();
    if (seen.topicId === null && options.createsTopic === false) {
      throw new NoTopicError(
        `There is no topic ${cluster.topic}. Before the first start of a server that is right; later LOG_URL is wrong or ` +
          'the topic was deleted, and the next start of a server says what to do.',
      );
    }
    if (seen.topicId === null) await createTopic(cluster);
    return isComplete(seen) ? seen : undefined;
  });
  const settings = await untilReady(cluster, options, () => topicSettings(cluster));
  const replication = Math.min(...metadata.partitions.map(({ replicas }) => replicas.length));
  const { errors, warnings } = validateTopic(settings, { replication, retentionMs: options.retentionMs });
  const { topic, partitions: wanted } = cluster.address;
  if (errors.length > 0 && options.isReadOnly !== true) {
    throw new OperatorError(`The topic ${topic} is not safe for events: ${errors.join('; ')}.`);
  }
  // More are not a mistake: partitions may be added later.
  if (wanted !== null && wanted > metadata.partitions.length) {
    warnings.push(`it has ${metadata.partitions.length} partitions; LOG_URL's ${wanted} applies only to a new topic`);
  }
  const behind = metadata.partitions.filter(({ replicas, inSync }) => inSync.length < replicas.length).length;
  if (behind > 0) {
    warnings.push(
      `${behind} of ${metadata.partitions.length} partitions have replicas that are not in sync: a broker is down or behind, and with one more the topic may refuse data. Start it, or wait until it has caught up`,
    );
  }
  for (const error of errors) options.warn?.(`topic ${topic}: ${error}. Edges and processors refuse to start on it`);
  for (const warning of warnings) options.warn?.(`topic ${topic}: ${warning}`);
  return { id: metadata.topicId ?? '', inSyncMin: Number(settings.get('min.insync.replicas') ?? 1) };
}

/** The problems of a topic's settings, each with what to do. Pure. */
export function validateTopic(
  settings: ReadonlyMap<string, string>,
  { replication, retentionMs }: { readonly replication: number; readonly retentionMs: number },
): { readonly errors: string[]; readonly warnings: string[] } {
  const errors: string[] = [];
  const warnings: string[] = [];
  const number = (name: string, otherwise: number): number => Number(settings.get(name) ?? otherwise);
  const inSyncMin = number('min.insync.replicas', 1);
  if (replication >= 2 && inSyncMin < 2) {
    errors.push(
      `min.insync.replicas is ${inSyncMin} with ${replication} replicas, so an event may be acknowledged that only one broker has; set it to 2`,
    );
  }
  if (inSyncMin > replication) {
    errors.push(`min.insync.replicas is ${inSyncMin} with ${replication} replicas, so nothing can be written`);
  }
  if (settings.get('unclean.leader.election.enable') === 'true') {
    errors.push(
      'unclean.leader.election.enable is true, so acknowledged events are lost when a broker without them becomes leader; set it to false',
    );
  }
  if ((settings.get('cleanup.policy') ?? 'delete').includes('compact')) {
    errors.push('cleanup.policy is compact, which deletes events; set it to delete');
  }
  const messageBytes = number('max.message.bytes', 0);
  if (messageBytes < MESSAGE_BYTES_MIN) {
    errors.push(
      `max.message.bytes is ${messageBytes}, too little for a user of 10 MB; set it to ${MESSAGE_BYTES} (at least ${MESSAGE_BYTES_MIN})`,
    );
  }
  const kept = number('retention.ms', -1);
  if (kept >= 0 && kept < retentionMs) {
    errors.push(
      `retention.ms is ${kept}, less than the retention of the log (${retentionMs}); set it to -1: Sluice deletes records that are processed and old enough`,
    );
  } else if (kept >= 0) {
    warnings.push(
      `retention.ms is ${kept}: records that wait longer than that to be processed are lost; set it to -1: Sluice deletes records that are processed and old enough`,
    );
  }
  if (number('retention.bytes', -1) >= 0) {
    errors.push('retention.bytes is set, which deletes events that may not be processed yet; set it to -1');
  }
  if (replication === 1) {
    warnings.push(
      'it has one replica: a broker that loses its disk loses events that were acknowledged; to have three, use kafka-reassign-partitions.sh, then set min.insync.replicas to 2',
    );
    if (number('flush.messages', 2) !== 1) {
      warnings.push('flush.messages is not 1: a broker that loses power loses events that were acknowledged');
    }
  } else if (inSyncMin === replication) {
    warnings.push(`min.insync.replicas is ${inSyncMin}, all replicas: if one broker fails, events are rejected`);
  }
  return { errors, warnings };
}

function isComplete({ topicId, partitions }: ClusterMetadata): boolean {
  return topicId !== null && partitions.length > 0 && partitions.every(({ leader }) => leader >= 0);
}

async function createTopic(cluster: Cluster): Promise<void> {
  const { address, topic } = cluster;
  const replication = address.replication ?? REPLICATION_DEFAULT;
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
      // A server whose clock is ahead must not lose events.
      { name: 'message.timestamp.after.max.ms', value: '9223372036854775807' },
      // With one replica only the disk makes events durable.
      ...(replication === 1 ? [{ name: 'flush.messages', value: '1' }] : []),
    ],
  };
  const { topics } = await responseOf(
    createTopicsV7.api.async(await cluster.anyBroker(), [wanted], CREATE_MS_MAX, false),
  );
  const [created] = topics;
  const code = created?.errorCode ?? CODE.none;
  if (code === CODE.none || code === CODE.topic_already_exists) return;
  const why = `${describeCode(code)}${created?.errorMessage ? `: ${created.errorMessage}` : ''}`;
  if (code === CODE.invalid_replication_factor) {
    // Not an operator error: servers may start before all brokers.
    throw new LogUnavailableError(
      `the topic ${topic} is created with ${replication} replicas once Kafka has that many brokers; with replication=1 in LOG_URL one is enough, for tests (${why})`,
    );
  }
  if (code === CODE.topic_authorization_failed || code === CODE.cluster_authorization_failed) {
    const settings = wanted.configs.map(({ name, value }) => `${name}=${value}`).join(' ');
    throw new OperatorError(
      `The topic ${topic} does not exist and this user may not create it (${why}). Create it with ${wanted.numPartitions} partitions, ${replication} replicas and ${settings}.`,
    );
  }
  throw new LogUnavailableError(`the topic ${topic} cannot be created: ${why}`);
}

async function topicSettings(cluster: Cluster): Promise<Map<string, string> | undefined> {
  const resources = [{ resourceType: TOPIC_RESOURCE, resourceName: cluster.topic, configurationKeys: null }] as const;
  const { results } = await responseOf(
    describeConfigsV4.api.async(await cluster.anyBroker(), [...resources], false, false),
  );
  const [result] = results;
  if (result?.errorCode === CODE.topic_authorization_failed) {
    throw new OperatorError(
      `The settings of the topic ${cluster.topic} cannot be checked: allow this user DescribeConfigs on it.`,
    );
  }
  // A broker may not know a new topic yet.
  if (result === undefined || result.errorCode !== CODE.none) return undefined;
  return new Map(result.configs.map(({ name, value }) => [name, value ?? '']));
}

/** Until there is a response. An operator error is thrown immediately. */
async function untilReady<Found>(
  cluster: Cluster,
  { openMsMax = OPEN_MS_MAX, unreachableMsMax = openMsMax, createsTopic, warn }: TopicOptions,
  request: () => Promise<Found | undefined>,
): Promise<Found> {
  const begin = performance.now();
  let problem = 'it does not respond';
  let failure: string | null = null;
  let msMax = openMsMax;
  do {
    try {
      const found = await request();
      if (found !== undefined) {
        // For a command: a server also starts while brokers do.
        if (failure !== null && createsTopic === false) warn?.(failure);
        return found;
      }
      problem = `the topic ${cluster.topic} is not ready`;
      msMax = openMsMax;
    } catch (error) {
      if (error instanceof OperatorError) throw error;
      if (error instanceof LoginFailedError) throw new OperatorError(`${error.message}. Check LOG_URL.`);
      problem = messageOf(error);
      failure = problem;
      msMax = Math.min(openMsMax, unreachableMsMax);
    }
    await sleep(RETRY_MS);
  } while (performance.now() - begin < msMax);
  const brokers = cluster.address.brokers.map(({ host, port }) => `${host}:${port}`).join(', ');
  throw new LogUnreachableError(
    `Kafka at ${brokers} cannot be used: ${problem}. Check LOG_URL and that Kafka is running.`,
    {
      cause: new Error(problem),
    },
  );
}
