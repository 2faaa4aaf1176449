/**
 * Sluice as it is scaled out: servers of the roles edge, processor and api, each a process of its own, on a Kafka and a
 * PostgreSQL that the test has. Everything is killed, by its process id, when the scope is left. A test gets a tenant of
 * its own, so that several share an installation.
 */

import assert from 'node:assert/strict';
import { Admin, ConfigResourceTypes, IncrementalAlterConfigOperationTypes } from '@platformatic/kafka';
import { folderIn, launch, type Scope } from '../faults/scope.ts';
import { eventually, runSluice, type TestServer } from '../server.ts';

export type RoleName = 'edge' | 'processor' | 'api';

export interface Installation {
  readonly env: Readonly<Record<string, string>>;
  readonly api: TestServer;
  /** One more server; `env` is for what differs. */
  start(role: RoleName, env?: Readonly<Record<string, string>>): Promise<TestServer>;
  /** A secret key of an account that nobody else has. */
  newTenant(): Promise<string>;
}

export interface Places {
  readonly brokers: string;
  readonly topic: string;
  readonly partitions: number;
  readonly storeUrl: string;
}

const READY_MS_MAX = 60_000;
/** A processor that was killed is missed after this; the default is made for networks and would only be waited for. */
const SESSION_MS = 2_000;

/** Starts the API server, which makes the topic and the tables; the others are for the test to start. */
export async function install(scope: Scope, places: Places): Promise<Installation> {
  const { brokers, topic, partitions, storeUrl } = places;
  const env = {
    STORE_URL: storeUrl,
    LOG_URL: `kafka://${brokers}/${topic}?partitions=${partitions}`,
    SLUICE_STORE_CONNECTIONS: '4',
  };
  const start: Installation['start'] = (role, more = {}) =>
    launch(scope, { dataFolder: `${folderIn(scope)}/none`, env: { ...env, ...more }, args: ['--role', role] });
  const [api] = await Promise.all([start('api'), shortenSessions(brokers, `sluice.${topic}`)]);
  let tenants = 0;
  return {
    env,
    api,
    start,
    newTenant: async () => {
      tenants += 1;
      return newKey(env, `tenant ${tenants}`);
    },
  };
}

async function shortenSessions(brokers: string, group: string): Promise<void> {
  const admin = new Admin({ clientId: 'sluice-test', bootstrapBrokers: brokers.split(',') });
  const configOperation = IncrementalAlterConfigOperationTypes.SET;
  const configs = [{ name: 'consumer.session.timeout.ms', configOperation, value: String(SESSION_MS) }];
  try {
    await admin.incrementalAlterConfigs({
      resources: [{ resourceType: ConfigResourceTypes.GROUP, resourceName: group, configs }],
      validateOnly: false,
    });
  } finally {
    await admin.close();
  }
}

/** Made with the command, as a person would. */
export async function newKey(env: Readonly<Record<string, string>>, account: string): Promise<string> {
  const wishes = ['--name', 'test', '--kind', 'secret', '--env', 'development', '--account', account, '--json'];
  const made = await runSluice(['keys', 'create', ...wishes], env);
  assert.equal(made.code, 0, made.stderr);
  return (JSON.parse(made.stdout) as { key: string }).key;
}

export async function becomesReady(server: TestServer): Promise<void> {
  await eventually(
    'the server is ready',
    async () => (await fetch(`${server.baseUrl}/readyz`)).status === 200,
    READY_MS_MAX,
  );
}

/** The value of a metric without labels; 0 where it is not told. */
export async function metricOf(server: TestServer, name: string): Promise<number> {
  const text = await (await fetch(`${server.baseUrl}/metrics`)).text();
  return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1] ?? 0);
}

/** What no server may have said, whatever happened to its neighbours. */
export function assertUnharmed(servers: readonly TestServer[]): void {
  for (const server of servers) {
    assert.doesNotMatch(
      server.stderr(),
      /failed unexpectedly|crashed|ending: start again|the books do not balance|set aside/,
    );
  }
}
