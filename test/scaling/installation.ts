/**
 * Sluice as it is scaled out: servers of the roles edge, processor and api, each a process of its own, on a Kafka and a
 * PostgreSQL that the test has. Everything is killed, by its process id, when the scope is left. A test gets a tenant of
 * its own, so that several share an installation.
 */

import assert from 'node:assert/strict';
import { Admin, ConfigResourceTypes, IncrementalAlterConfigOperationTypes } from '@platformatic/kafka';
import { folderIn, launch, type Scope } from '../faults/scope.ts';
import { groupName } from '../../src/backends/kafka/group-offsets.ts';
import { databaseIdOf } from '../../src/backends/postgres/identity.ts';
import { openPostgresKeyStore } from '../../src/backends/postgres/keys.ts';
import { openPool } from '../../src/backends/postgres/pool.ts';
import { createKey, newAccount } from '../../src/keys/manage.ts';
import { eventually, type TestServer } from '../server.ts';

export type RoleName = 'edge' | 'processor' | 'api';

export interface Installation {
  readonly env: Readonly<Record<string, string>>;
  readonly api: TestServer;
  /** One more server; `env` is for what differs. */
  readonly start: (role: RoleName, env?: Readonly<Record<string, string>>) => Promise<TestServer>;
  /** A secret key of an account of its own. */
  readonly newTenant: () => Promise<string>;
}

export interface Places {
  readonly brokers: string;
  readonly topic: string;
  readonly partitions: number;
  readonly storeUrl: string;
}

const READY_MS_MAX = 150_000;
/** Kafka misses a member that was killed after seconds only; until then its partitions rest. */
const WORK_MS_MAX = 150_000;
/** A server that waits for a connection for two seconds only may get none on a busy machine, and is started again by who runs it. */
const STARTS_MAX = 3;
/** A processor that was killed is missed after this; the default is made for networks and would only be waited for. */
const SESSION_MS = 2_000;

/** Starts the API server, which makes the topic and the tables; the others are for the test to start. */
export async function install(scope: Scope, places: Places): Promise<Installation> {
  const { brokers, topic, partitions, storeUrl } = places;
  const env = {
    STORE_URL: storeUrl,
    LOG_URL: `kafka://${brokers}/${topic}?partitions=${partitions}&replication=${brokers.split(',').length}`,
    SLUICE_STORE_CONNECTIONS: '4',
  };
  const start: Installation['start'] = async (role, more = {}) => {
    for (let left = STARTS_MAX; ; left--) {
      try {
        const place = { dataFolder: `${folderIn(scope)}/none`, env: { ...env, ...more } };
        return await launch(scope, { ...place, args: ['--role', role] });
      } catch (error) {
        if (left <= 1 || !String(error).includes('cannot be reached')) throw error;
      }
    }
  };
  const api = await start('api');
  await shortenSessions(brokers, groupName(topic, await databaseIdAt(storeUrl)));
  let tenants = 0;
  return {
    env,
    api,
    start,
    newTenant: async () => {
      tenants += 1;
      return newKey(storeUrl, `tenant ${tenants}`);
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

async function databaseIdAt(storeUrl: string): Promise<string> {
  const pool = await openPool({ url: storeUrl, max: 1, applicationName: 'sluice test' });
  try {
    return await databaseIdOf(pool);
  } finally {
    await pool.close();
  }
}

/** As the command makes it, without the start of a process. */
export async function newKey(storeUrl: string, accountName: string): Promise<string> {
  const pool = await openPool({ url: storeUrl, max: 1, applicationName: 'sluice test' });
  const store = openPostgresKeyStore(pool);
  const now = Date.now();
  try {
    const { id: accountId } = await store.ensureAccount(newAccount(accountName, now));
    const options = { name: 'test', kind: 'secret', environment: 'development', origins: [], expiresAt: null } as const;
    return (await createKey(store, { ...options, accountId, now })).key;
  } finally {
    await store.close();
  }
}

export async function becomesReady(server: TestServer): Promise<void> {
  await eventually(
    'the server is ready',
    async () => (await fetch(`${server.baseUrl}/readyz`)).status === 200,
    READY_MS_MAX,
  );
}

/** The value of a metric without labels; 0 if it is missing. */
export async function metricOf(server: TestServer, name: string): Promise<number> {
  const text = await (await fetch(`${server.baseUrl}/metrics`)).text();
  return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1] ?? 0);
}

/** Resolves when the processor has committed so many more batches; another processor may have the partitions at first. */
export async function works(processor: TestServer, batches = 1): Promise<void> {
  const count = (): Promise<number> => metricOf(processor, 'sluice_processor_transactions_total');
  const before = await count();
  await eventually('the processor works', async () => (await count()) >= before + batches, WORK_MS_MAX);
}

/** What no server may have said, whatever happened to its neighbours. */
export function assertUnharmed(servers: readonly TestServer[]): void {
  for (const server of servers) {
    assert.doesNotMatch(
      server.stderr(),
      /failed unexpectedly|crashed|ending: start again|not every event is accounted for|dead letter/,
    );
  }
}
