/**
 * The servers that all tests of one run share: which ones the chosen test files need, getting and starting them, and
 * what the tests get to know about them. A server that cannot be had is no reason to stop: the tests that need it say so,
 * and fail where CI is set.
 */

import { fileURLToPath } from 'node:url';
import { importedBy } from '../imports.ts';
import { ensureTools } from '../tools.ts';
import { ensureKafkaJars, kafkaTools } from './kafka-jars.ts';
import { ownKafka } from './kafka.ts';
import { startSharedPostgres } from './postgres.ts';

const POSTGRES = fileURLToPath(new URL('postgres.ts', import.meta.url));
const KAFKA = fileURLToPath(new URL('kafka.ts', import.meta.url));

export interface SharedServers {
  /** For the environment of the tests. */
  readonly env: Readonly<Record<string, string>>;
  readonly close: () => Promise<void>;
}

interface Started {
  readonly env: Record<string, string>;
  readonly close?: () => Promise<void>;
}

type Report = (line: string) => void;

/** `files` are absolute paths of test files. */
export async function startSharedServers(files: readonly string[], report: Report): Promise<SharedServers> {
  const imported = importedBy(files);
  const needsPostgres = imported.has(POSTGRES);
  const needsKafka = imported.has(KAFKA);
  await ensureTools([...(needsPostgres ? ['initdb'] : []), ...(needsKafka ? kafkaTools() : [])], report);
  const starts: Promise<Started>[] = [];
  if (needsPostgres) starts.push(start('PostgreSQL', 'TEST_POSTGRES_URL', 'TEST_POSTGRES_MISSING', postgres, report));
  if (needsKafka) starts.push(start('Kafka', 'TEST_KAFKA_BROKERS', 'TEST_KAFKA_MISSING', kafka, report));
  const started = await Promise.all(starts);
  return {
    env: Object.assign({}, ...started.map(({ env }) => env)) as Record<string, string>,
    close: async () => {
      await Promise.all(started.map(async ({ close }) => close?.()));
    },
  };

  async function postgres(): Promise<[string, () => Promise<void>]> {
    const server = await startSharedPostgres();
    return [server.url, server.close];
  }

  async function kafka(): Promise<[string, () => Promise<void>]> {
    await ensureKafkaJars(report);
    const cluster = await ownKafka(1);
    return [cluster.brokers, cluster.close];
  }
}

async function start(
  what: string,
  variable: string,
  missing: string,
  open: () => Promise<[address: string, close: () => Promise<void>]>,
  report: Report,
): Promise<Started> {
  // The environment names one.
  if (process.env[variable] !== undefined) return { env: {} };
  const before = performance.now();
  try {
    const [address, close] = await open();
    report(`Started ${what} for the tests in ${((performance.now() - before) / 1_000).toFixed(1)} s.`);
    return { env: { [variable]: address }, close };
  } catch (error) {
    const { message } = error as Error;
    report(`${what} cannot be started, so the tests that need it do not run: ${message}`);
    return { env: { [missing]: message.split('\n')[0] ?? '' } };
  }
}
