/**
 * One client's view of the cluster: connections, who leads which partition of the topic, and who coordinates a group.
 * The view is kept until somebody finds it wrong (`refresh`) or it is a minute old; asking for it anew happens once at a
 * time. Nothing runs on its own: without calls there is no traffic and no timer.
 *
 * Requests of one connection are answered in order, so whoever asks Kafka to wait (long polls) uses a cluster of its own.
 */

import { type Broker, type Connection, ConnectionPool, findCoordinatorV4, metadataV12 } from '@platformatic/kafka';
import { LogUnavailableError } from '../../log.ts';
import { answered, CODE, unreachable, wordsOf } from './codes.ts';
import { connectionOptionsOf, type KafkaAddress } from './url.ts';

const VIEW_AGE_MS_MAX = 60_000;
const GROUP_KEY_TYPE = 0;
/** A little more than the client takes to give up by itself. */
const CONNECTED_MS_MAX = 4_000;

export interface PartitionView {
  /** The number of a broker; -1 while there is none. */
  readonly leader: number;
  /** Grows with each leader. Said with a question, so that a broker that leads no more does not answer it. */
  readonly epoch: number;
  readonly replicas: readonly number[];
  readonly inSync: readonly number[];
}

export interface ClusterView {
  readonly brokers: ReadonlyMap<number, Broker>;
  /** Null: there is no such topic. */
  readonly topicId: string | null;
  /** By number. */
  readonly partitions: readonly PartitionView[];
}

interface KnownView extends ClusterView {
  readonly at: number;
}

export class Cluster {
  readonly address: KafkaAddress;
  readonly #pool: ConnectionPool;
  #view: KnownView | null = null;
  #refreshing: Promise<ClusterView> | null = null;
  /** Where asking for a view begins: a broker that does not answer is not asked first again. */
  #firstAsked = 0;
  #coordinators = new Map<string, Broker>();
  #isClosed = false;

  constructor(address: KafkaAddress, clientName: string, requestMsMax?: number) {
    this.address = address;
    this.#pool = new ConnectionPool(clientName, {
      ...connectionOptionsOf(address),
      ...(requestMsMax === undefined ? {} : { requestTimeout: requestMsMax }),
    });
    // Requests are told what became of them; an error event that nobody hears would end the process.
    this.#pool.on('connecting', ({ connection }) => connection.on('error', () => undefined));
  }

  get topic(): string {
    return this.address.topic;
  }

  /** Calls back whenever a connection is lost. */
  onDisconnect(callback: () => void): void {
    this.#pool.on('disconnect', () => {
      // The pool forgets the connection after it has said so.
      setImmediate(() => {
        if (!this.#isClosed) callback();
      });
    });
  }

  /** The view that is there, however old. */
  get known(): ClusterView | null {
    return this.#view;
  }

  async view(): Promise<ClusterView> {
    const view = this.#view;
    if (view === null) return this.refresh();
    // What is known is likely right; who finds out that it is not will say so.
    if (performance.now() - view.at > VIEW_AGE_MS_MAX) void this.refresh().catch(() => undefined);
    return view;
  }

  refresh(): Promise<ClusterView> {
    this.#refreshing ??= this.#askForView().finally(() => {
      this.#refreshing = null;
    });
    return this.#refreshing;
  }

  async connection(node: number): Promise<Connection> {
    const broker = (await this.view()).brokers.get(node);
    if (broker === undefined) throw new LogUnavailableError(`broker ${node} is not in the cluster now`);
    return this.#connect(broker);
  }

  async leader(partition: number): Promise<{ readonly connection: Connection; readonly epoch: number }> {
    let found = (await this.view()).partitions[partition];
    if ((found?.leader ?? -1) < 0) found = (await this.refresh()).partitions[partition];
    if (found === undefined || found.leader < 0)
      throw new LogUnavailableError(`partition ${partition} has no leader now`);
    return { connection: await this.connection(found.leader), epoch: found.epoch };
  }

  /** To any broker. */
  async any(): Promise<Connection> {
    const bootstrap = this.address.brokers;
    const known = [...(this.#view?.brokers.values() ?? [])];
    const all = [...bootstrap, ...known.filter((one) => !bootstrap.some((other) => isSame(one, other)))];
    const first = this.#firstAsked % all.length;
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

  /** To the broker that looks after a group. `forgetCoordinator` when it says that it does not. */
  async coordinator(group: string): Promise<Connection> {
    let broker = this.#coordinators.get(group);
    if (broker === undefined) {
      const { coordinators } = await answered(findCoordinatorV4.api.async(await this.any(), GROUP_KEY_TYPE, [group]));
      const [found] = coordinators;
      if (found === undefined || found.errorCode !== CODE.none) {
        throw new LogUnavailableError(`it has no coordinator: ${wordsOf(found?.errorCode ?? -1)}`);
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

  /** The client has states in which it never answers; nobody is to wait for that. */
  async #connect(broker: Broker): Promise<Connection> {
    const established = this.#pool.getEstablishedConnection(broker);
    if (established?.isConnected() === true) return established;
    const late = Promise.withResolvers<Connection>();
    const timer = setTimeout(() => {
      late.reject(new LogUnavailableError(`${broker.host}:${broker.port} does not answer`));
    }, CONNECTED_MS_MAX);
    try {
      return await Promise.race([this.#pool.get(broker), late.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  async #askForView(): Promise<ClusterView> {
    try {
      const connection = await this.any();
      const answer = await answered(metadataV12.api.async(connection, [this.topic], false, false));
      const [topic] = answer.topics;
      const isThere = topic !== undefined && topic.errorCode !== CODE.unknown_topic_or_partition;
      if (isThere && topic.partitions.length === 0) {
        throw new LogUnavailableError(`Kafka does not say where its topic is: ${wordsOf(topic.errorCode)}`);
      }
      const partitions: PartitionView[] = [];
      for (const { partitionIndex, leaderId, leaderEpoch, replicaNodes, isrNodes } of isThere ? topic.partitions : []) {
        partitions[partitionIndex] = {
          leader: leaderId,
          epoch: leaderEpoch,
          replicas: replicaNodes,
          inSync: isrNodes,
        };
      }
      const brokers = new Map(answer.brokers.map(({ nodeId, host, port }) => [nodeId, { host, port }]));
      this.#view = { at: performance.now(), brokers, topicId: isThere ? topic.topicId : null, partitions };
      return this.#view;
    } catch (error) {
      this.#firstAsked++;
      throw unreachable(error);
    }
  }
}

function isSame(one: Broker, other: Broker): boolean {
  return one.host === other.host && one.port === other.port;
}
