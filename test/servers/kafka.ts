/**
 * Real Kafka for the tests, in KRaft mode. `testKafka` is one broker for all: the brokers of TEST_KAFKA_BROKERS, which
 * `npm test` sets, or one that this process starts and that ends with it. `ownKafka` is a cluster for one test alone,
 * which may kill and start its brokers. With three brokers the controller is a process of its own that is never killed,
 * so that two brokers gone means too few replicas, and not a cluster without a head.
 */

import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Admin } from '@platformatic/kafka';
import { findTool } from '../tools.ts';
import { ensureKafkaJars, kafkaHindrance } from './kafka-jars.ts';
import { freePort, makeServerFolder, ready, type ServerFolder, type ServerProcess } from './processes.ts';

const run = promisify(execFile);

/** Generous: several brokers at once, on a busy machine. */
const READY_MS_MAX = 90_000;
const METADATA_MS_MAX = 2_000;
const STARTED = 'Kafka Server started';
/** Small and quick to start; nothing here runs long enough for the second compiler to pay. */
const JAVA_OPTIONS = [
  '-Xms128m',
  '-Xmx256m',
  '-XX:TieredStopAtLevel=1',
  '-XX:+UseSerialGC',
  '-Djava.awt.headless=true',
];

export interface TestKafka {
  /** `host:port,…` */
  readonly brokers: string;
  readonly newTopicName: () => string;
}

export interface OwnKafka extends TestKafka {
  /** SIGKILL. Resolves when the process is gone; the cluster notices within seconds. */
  readonly killBroker: (index: number) => Promise<void>;
  /** Resolves when the broker takes requests again; its replicas may still catch up. */
  readonly startBroker: (index: number) => Promise<void>;
  /** Where the broker keeps its files. */
  readonly dataFolder: (index: number) => string;
  readonly close: () => Promise<void>;
}

/** For `suite(name, { skip })`: false, or why these tests cannot run here. On a CI machine that is a failure. */
export function whyNoKafka(kind: 'shared' | 'own' = 'shared'): string | false {
  if (kind === 'shared' && process.env['TEST_KAFKA_BROKERS'] !== undefined) return false;
  const failure = process.env['TEST_KAFKA_MISSING'] ?? kafkaHindrance();
  if (failure === undefined) return false;
  const reason = `needs Kafka: ${failure}`;
  if (process.env['CI'] !== undefined) throw new Error(`cannot run in CI: ${reason}`);
  return reason;
}

let shared: Promise<string> | undefined;

export async function testKafka(): Promise<TestKafka> {
  shared ??= sharedBrokers();
  return { brokers: await shared, newTopicName };
}

async function sharedBrokers(): Promise<string> {
  return process.env['TEST_KAFKA_BROKERS'] ?? (await ownKafka(1)).brokers;
}

function newTopicName(): string {
  return `sluice-test-${randomBytes(6).toString('hex')}`;
}

/** `isStarted: false` for brokers that the test starts itself. */
export async function ownKafka(count: 1 | 3, { isStarted = true } = {}): Promise<OwnKafka> {
  const jars = await ensureKafkaJars((line) => console.error(line));
  const folder = makeServerFolder('kafka', 'SIGKILL');
  try {
    const nodes = await layOut(folder, count);
    await format(jars, folder, nodes);
    const brokers = nodes.filter((node) => node.isBroker);
    const addresses = brokers.map((node) => node.address);
    const startBroker = async (index: number): Promise<void> => {
      const node = nodeAt(brokers, index);
      if (node.process?.isRunning() === true) return;
      await startNode(folder, jars, node);
      const running = brokers.filter(({ process: server }) => server?.isRunning() === true).length;
      await knows(node, running);
    };
    if (isStarted) {
      await Promise.all(nodes.map(async (node) => startNode(folder, jars, node)));
      await Promise.all(brokers.map(async (node) => knows(node, count)));
    }
    return {
      brokers: addresses.join(','),
      newTopicName,
      killBroker: async (index) => nodeAt(brokers, index).process?.end('SIGKILL'),
      startBroker,
      dataFolder: (index) => nodeAt(brokers, index).dataFolder,
      close: async () => folder.remove(),
    };
  } catch (error) {
    await folder.remove();
    throw error;
  }
}

interface Node {
  readonly id: number;
  readonly name: string;
  readonly isBroker: boolean;
  /** Of a broker: where clients reach it. */
  readonly address: string;
  readonly settingsFile: string;
  readonly dataFolder: string;
  process?: ServerProcess;
  starts: number;
}

function nodeAt(brokers: readonly Node[], index: number): Node {
  const node = brokers[index];
  if (node === undefined) throw new RangeError(`there is no broker ${index}, but 0 to ${brokers.length - 1}`);
  return node;
}

/** Writes the settings of every node. */
async function layOut(folder: ServerFolder, count: 1 | 3): Promise<Node[]> {
  writeFileSync(join(folder.path, 'log4j2.properties'), KAFKA_LOGGING);
  const controllerPort = await freePort();
  // A single broker is its own controller.
  const ids = count === 1 ? [1] : [0, 1, 2, 3];
  const nodes: Node[] = [];
  for (const id of ids) {
    const isBroker = id !== 0;
    const isController = id === ids[0];
    const name = isBroker ? `broker-${id}` : 'controller';
    const address = `127.0.0.1:${isBroker ? await freePort() : controllerPort}`;
    const dataFolder = join(folder.path, name);
    mkdirSync(dataFolder);
    const listeners = [
      ...(isBroker ? [`CLIENTS://${address}`] : []),
      ...(isController ? [`CONTROLLER://127.0.0.1:${controllerPort}`] : []),
    ];
    const settings = {
      'process.roles': [...(isBroker ? ['broker'] : []), ...(isController ? ['controller'] : [])].join(','),
      'node.id': id,
      'controller.quorum.voters': `${ids[0]}@127.0.0.1:${controllerPort}`,
      listeners: listeners.join(','),
      'log.dirs': dataFolder,
      ...(isBroker ? { 'inter.broker.listener.name': 'CLIENTS' } : {}),
      ...commonSettings(count),
    };
    const settingsFile = join(folder.path, `${name}.properties`);
    const lines = Object.entries(settings).map(([key, value]) => `${key}=${value}\n`);
    writeFileSync(settingsFile, lines.join(''));
    nodes.push({ id, name, dataFolder, isBroker, address, settingsFile, starts: 0 });
  }
  return nodes;
}

/** What differs from Kafka's defaults: topics of its own that fit, and faults that show within seconds. */
function commonSettings(count: 1 | 3): Record<string, string | number | boolean> {
  const inSync = count === 1 ? 1 : 2;
  return {
    'listener.security.protocol.map': 'CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'controller.listener.names': 'CONTROLLER',
    'auto.create.topics.enable': false,
    'num.partitions': 1,
    'default.replication.factor': count,
    'offsets.topic.replication.factor': count,
    'offsets.topic.num.partitions': 4,
    'transaction.state.log.replication.factor': count,
    'transaction.state.log.min.isr': inSync,
    'transaction.state.log.num.partitions': 4,
    'share.coordinator.state.topic.replication.factor': count,
    'share.coordinator.state.topic.min.isr': inSync,
    'share.coordinator.state.topic.num.partitions': 4,
    'group.initial.rebalance.delay.ms': 0,
    'group.consumer.min.heartbeat.interval.ms': 500,
    'group.consumer.heartbeat.interval.ms': 500,
    'group.consumer.min.session.timeout.ms': 1_000,
    'group.consumer.session.timeout.ms': 6_000,
    'broker.heartbeat.interval.ms': 500,
    'broker.session.timeout.ms': 3_000,
    'replica.lag.time.max.ms': 3_000,
    'replica.fetch.wait.max.ms': 200,
    'log.cleaner.dedupe.buffer.size': 4 * 1024 * 1024,
    'log.cleaner.backoff.ms': 500,
  };
}

/** For log4j2.properties. */
export const KAFKA_LOGGING = `status=error
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1} %m%n
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
logger.settings.name=org.apache.kafka.common.config
logger.settings.level=WARN
`;

function java(): string {
  const path = findTool('java');
  if (path === undefined) throw new Error('Kafka needs Java 17 or newer: java was not found');
  return path;
}

/**
 * Formats the folders of all nodes in one go, as if they were the first node's, since each run of the tool costs more
 * than a second. Then each is given to its node.
 */
async function format(jars: string, folder: ServerFolder, nodes: readonly Node[]): Promise<void> {
  const [first] = nodes;
  if (first === undefined) return;
  const settingsFile = join(folder.path, 'format.properties');
  const settings = readFileSync(first.settingsFile, 'utf8');
  const dataFolders = nodes.map(({ dataFolder }) => dataFolder).join(',');
  const overriding = `log.dirs=${dataFolders}\nmetadata.log.dir=${first.dataFolder}\n`;
  writeFileSync(settingsFile, settings + overriding);
  // 16 bytes; a leading dash would look like an option.
  const clusterId = randomBytes(16).toString('base64url').replace(/^-/, 'A');
  const args = ['-cp', join(jars, '*'), 'kafka.tools.StorageTool', 'format', '-t', clusterId, '-c', settingsFile];
  await run(java(), [...JAVA_OPTIONS, ...args]);
  for (const { id, dataFolder } of nodes) {
    const file = join(dataFolder, 'meta.properties');
    writeFileSync(file, readFileSync(file, 'utf8').replace(/^node\.id=.*$/m, `node.id=${id}`));
  }
}

async function startNode(folder: ServerFolder, jars: string, node: Node): Promise<void> {
  node.starts++;
  const options = [...JAVA_OPTIONS, `-Dlog4j2.configurationFile=${join(folder.path, 'log4j2.properties')}`];
  const args = [...options, '-cp', join(jars, '*'), 'kafka.Kafka', node.settingsFile];
  const server = folder.run(`${node.name}-${node.starts}`, java(), args);
  node.process = server;
  await ready(`Kafka's ${node.name}`, server, READY_MS_MAX, async () => server.hasSaid(STARTED));
}

/** Waits until a broker tells clients of so many brokers: it hears of the others a little after it is up itself. */
async function knows(node: Node, brokers: number): Promise<void> {
  const { process: server } = node;
  if (server === undefined) return;
  await ready(`Kafka's ${node.name}`, server, READY_MS_MAX, async () => {
    const admin = new Admin({
      clientId: 'sluice-test',
      bootstrapBrokers: [node.address],
      retries: 0,
      connectTimeout: METADATA_MS_MAX,
      timeout: METADATA_MS_MAX,
    });
    try {
      return (await admin.metadata({ topics: [] })).brokers.size >= brokers;
    } catch {
      return false;
    } finally {
      await admin.close();
    }
  });
}
