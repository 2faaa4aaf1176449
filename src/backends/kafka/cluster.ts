/**
 * One client's view of the cluster: connections, the leader of each partition of the topic, and the coordinator of a
 * group. Metadata is cached until a caller finds it outdated (`refresh`) or it is a minute old; one request for it is in
 * flight at a time. There is no background work: without calls there is no traffic and no timer.
 *
 * Kafka responds to the requests of a connection in order, so long polls use a cluster of their own.
 */

import {
  AclOperations,
  type Broker,
  type Connection,
  ConnectionPool,
  findCoordinatorV4,
  metadataV12,
} from '@platformatic/kafka';
import { LogUnavailableError } from '../../log.ts';
import { responseOf, CODE, asUnavailable, describeCode } from './errors.ts';
import { connectionOptionsOf, type KafkaAddress } from './url.ts';

const METADATA_AGE_MS_MAX = 60_000;
/** For FindCoordinator. */
export const GROUP_KEY_TYPE = 0;
/** A bit of the operations that are allowed on the topic. */
const MAY_WRITE = 1 << AclOperations.WRITE;
/** What a broker says that does not know them. */
const UNKNOWN_OPERATIONS = -(2 ** 31);
/** A little more than the client's own timeout. */
const CONNECTED_MS_MAX = 4_000;
/** Far below that of other requests: any broker has the metadata, and the next one is asked then. */
const METADATA_MS_MAX = 3_000;

interface PartitionMetadata {
  /** The id of a broker; -1 while there is none. */
  readonly leader: number;
  /** Increases with each leader. Sent with a request, so that a former leader rejects it. */
  readonly epoch: number;
  readonly replicas: readonly number[];
  readonly inSync: readonly number[];
}

export interface ClusterMetadata {
  readonly brokers: ReadonlyMap<number, Broker>;
  /** Null if the topic does not exist. */
  readonly topicId: string | null;
  readonly partitions: readonly PartitionMetadata[];
  /** Whether this user has the right to write to the topic. */
  readonly mayWrite: boolean;
}

export interface Leader {
  readonly connection: Connection;
  readonly epoch: number;
}

interface CachedMetadata extends ClusterMetadata {
  readonly at: number;
}

export class Cluster {
  readonly address: KafkaAddress;
  readonly #pool: ConnectionPool;
  #cached: CachedMetadata | null = null;
  #refreshing: Promise<ClusterMetadata> | null = null;
  /** Rotates, so that a broker that does not respond is not the first again. */
  #firstBroker = 0;
  #coordinators = new Map<string, Broker>();
  #isClosed = false;

  constructor(address: KafkaAddress, clientName: string, requestMsMax?: number) {
    this.address = address;
    this.#pool = new ConnectionPool(clientName, {
      ...connectionOptionsOf(address),
      ...(requestMsMax === undefined ? {} : { requestTimeout: requestMsMax }),
    });
    // Requests report their errors themselves; an error event without a listener would end the process.
    this.#pool.on('connecting', ({ connection }) => connection.on('error', () => undefined));
  }

  get topic(): string {
    return this.address.topic;
  }

  onDisconnect(callback: () => void): void {
    this.#pool.on('disconnect', () => {
      // The pool removes the connection only after the event.
      setImmediate(() => {
        if (!this.#isClosed) callback();
      });
    });
  }

  /** Metadata of any age; null before the first `refresh`. */
  get cachedMetadata(): ClusterMetadata | null {
    return this.#cached;
  }

  async metadata(): Promise<ClusterMetadata> {
    const cached = this.#cached;
    if (cached === null) return this.refresh();
    // Most likely still right; callers that find it outdated call `refresh`.
    if (performance.now() - cached.at > METADATA_AGE_MS_MAX) void this.refresh().catch(() => undefined);
    return cached;
  }

  refresh(): Promise<ClusterMetadata> {
    this.#refreshing ??= this.#fetchMetadata().finally(() => {
      this.#refreshing = null;
    });
    return this.#refreshing;
  }

  async connection(node: number): Promise<Connection> {
    const broker = (await this.metadata()).brokers.get(node);
    if (broker === undefined) throw new LogUnavailableError(`broker ${node} is not in the cluster`);
    return this.#connect(broker);
  }

  async leader(partition: number): Promise<Leader> {
    let found = (await this.metadata()).partitions[partition];
    if ((found?.leader ?? -1) < 0) found = (await this.refresh()).partitions[partition];
    if (found === undefined || found.leader < 0) throw new LogUnavailableError(`partition ${partition} has no leader`);
    return { connection: await this.connection(found.leader), epoch: found.epoch };
  }

  async anyBroker(): Promise<Connection> {
    const bootstrap = this.address.brokers;
    const known = [...(this.#cached?.brokers.values() ?? [])];
    const all = [...bootstrap, ...known.filter((one) => !bootstrap.some((other) => isSame(one, other)))];
    const first = this.#firstBroker % all.length;
    let failure: unknown;
    for (const broker of [...all.slice(first), ...all.slice(0, first)]) {
      try {
        return await this.#connect(broker);
      } catch (error) {
        failure = error;
      }
    }
    throw failure;
  }

  /** The caller calls `forgetCoordinator` when this broker says that it is not the coordinator. */
  async coordinator(group: string): Promise<Connection> {
    let broker = this.#coordinators.get(group);
    if (broker === undefined) {
      const { coordinators } = await responseOf(
        findCoordinatorV4.api.async(await this.anyBroker(), GROUP_KEY_TYPE, [group]),
      );
      const [found] = coordinators;
      if (found === undefined || found.errorCode !== CODE.none) {
        throw new LogUnavailableError(`no coordinator: ${describeCode(found?.errorCode ?? -1)}`);
      }
      broker = { host: found.host, port: found.port };
      this.#coordinators.set(group, broker);
    }
    try {
      return await this.#connect(broker);
    } catch (error) {
      this.forgetCoordinator(group);
      throw error;
    }
  }

  forgetCoordinator(group: string): void {
    this.#coordinators.delete(group);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#pool.close();
  }

  /** With a timeout of our own: in some states the client's `get` never settles. */
  async #connect(broker: Broker): Promise<Connection> {
    const established = this.#pool.getEstablishedConnection(broker);
    if (established?.isConnected() === true) return established;
    return within(CONNECTED_MS_MAX, broker, this.#pool.get(broker));
  }

  async #fetchMetadata(): Promise<ClusterMetadata> {
    try {
      const connection = await this.anyBroker();
      const asked = responseOf(metadataV12.api.async(connection, [this.topic], false, true));
      const response = await within(METADATA_MS_MAX, connection, asked);
      const [topic] = response.topics;
      const isThere = topic !== undefined && topic.errorCode !== CODE.unknown_topic_or_partition;
      if (isThere && topic.partitions.length === 0) {
        throw new LogUnavailableError(`Kafka returns no partitions of the topic: ${describeCode(topic.errorCode)}`);
      }
      const partitions: PartitionMetadata[] = [];
      for (const { partitionIndex, leaderId, leaderEpoch, replicaNodes, isrNodes } of isThere ? topic.partitions : []) {
        partitions[partitionIndex] = {
          leader: leaderId,
          epoch: leaderEpoch,
          replicas: replicaNodes,
          inSync: isrNodes,
        };
      }
      const brokers = new Map(response.brokers.map(({ nodeId, host, port }) => [nodeId, { host, port }]));
      const topicId = isThere ? topic.topicId : null;
      const operations = isThere ? topic.topicAuthorizedOperations : 0;
      const mayWrite = operations === UNKNOWN_OPERATIONS || (operations & MAY_WRITE) !== 0;
      this.#cached = { at: performance.now(), brokers, topicId, partitions, mayWrite };
      return this.#cached;
    } catch (error) {
      this.#firstBroker++;
      throw asUnavailable(error);
    }
  }
}

async function within<T>(ms: number, { host, port }: Pick<Connection, 'host' | 'port'>, asked: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<T>();
  const timer = setTimeout(() => {
    late.reject(new LogUnavailableError(`the broker ${host}:${port} does not respond`));
  }, ms);
  try {
    return await Promise.race([asked, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

function isSame(one: Broker, other: Broker): boolean {
  return one.host === other.host && one.port === other.port;
}
