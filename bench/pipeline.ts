/**
 * Sends a population's requests to a server and waits until every event of them can be read back: the measurement that
 * end-to-end, growth, merge-storm and cpu share. Time counts from the first request to the first response of
 * `GET /ledger` that has all of them stored and none pending. It fails when anything but a 202 came back, or when
 * more or fewer events are stored than were sent.
 */

import type { Context } from './context.ts';
import { type Population, USERS_PER_REQUEST } from './people-generator.ts';
import { assertAllAccepted } from './generator.ts';
import type { StoredResult } from './stored-result.ts';
import { type Noise, noiseText, worstNoise } from './noise.ts';
import { cpuSeconds, diskBytes, residentMegabytes, systemCpuSeconds, threadTimes, type ThreadTime } from './proc.ts';
import type { Reader } from './reading.ts';
import type { Server } from './servers.ts';

/** As edge-100 has them. */
const CONNECTIONS = 16;
const POLL_MILLISECONDS = 20;
/** Slower than this is not measured but given up. */
const EVENTS_PER_SECOND_MIN = 1_000;
const PATIENCE_SECONDS = 60;
const STALLED_SECONDS_MAX = 30;

export async function sendAndWait(
  context: Context,
  server: Server,
  reader: Reader,
  population: Population,
  users: number,
): Promise<StoredResult> {
  const coresBefore = await context.capacity.now();
  const storedBefore = (await reader.ledger()).stored;
  const before = await readings(server, reader);
  const secondsMax = PATIENCE_SECONDS + users / EVENTS_PER_SECOND_MIN;
  const edge = await context.generator.stream({
    port: server.port,
    key: server.key,
    connections: CONNECTIONS,
    population,
    usersPerRequest: USERS_PER_REQUEST,
    end: { requests: Math.ceil(users / USERS_PER_REQUEST) },
    secondsMax,
  });
  assertAllAccepted(server.name, edge);
  await waitUntilStored(reader, { before: storedBefore, sent: edge.users });
  const endedAt = performance.timeOrigin + performance.now();
  const after = await readings(server, reader);

  const seconds = (endedAt - edge.startedAt) / 1000;
  const transactions = after.transactions - before.transactions;
  const serverCpuSeconds = after.serverCpu - before.serverCpu;
  const ours = serverCpuSeconds + edge.generatorCpuSeconds + after.ownCpu - before.ownCpu;
  return {
    events: edge.users,
    seconds,
    perSecond: edge.users / seconds,
    edge,
    serverCpuSeconds,
    threads: busiest(before.threads, after.threads),
    serverDiskBytes: after.serverDisk - before.serverDisk,
    serverMegabytes: residentMegabytes(server.pid).peak,
    transactions,
    usersPerTransaction: (after.users - before.users) / transactions,
    merges: after.merges - before.merges,
    otherCpu: Math.max(0, after.systemCpu - before.systemCpu - ours) / seconds,
    cores: Math.min(coresBefore, await context.capacity.now()),
  };
}

/** The ledger is read last: metrics count an event when it is written, the ledger when it is committed. */
async function waitUntilStored(
  reader: Reader,
  { before, sent }: { readonly before: number; readonly sent: number },
): Promise<void> {
  let seen = -1;
  let seenAt = performance.now();
  for (;;) {
    const { isBehind, processed } = await reader.progress();
    if (isBehind) {
      if (processed !== seen) seenAt = performance.now();
      seen = processed;
    } else {
      const { stored, pending, difference } = await reader.ledger();
      if (stored - before > sent || difference !== 0) {
        throw new Error(
          `${stored - before} events are stored where ${sent} were sent, the ledger differs by ${difference}`,
        );
      }
      if (stored - before === sent && pending === 0) return;
    }
    if (performance.now() - seenAt > STALLED_SECONDS_MAX * 1000) {
      throw new Error(`nothing was processed for ${STALLED_SECONDS_MAX} s, and not all of ${sent} events are stored`);
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MILLISECONDS));
  }
}

interface Readings {
  readonly serverCpu: number;
  readonly threads: ReadonlyMap<string, ThreadTime>;
  readonly serverDisk: number;
  readonly systemCpu: number;
  readonly ownCpu: number;
  readonly users: number;
  readonly transactions: number;
  readonly merges: number;
}

async function readings(server: Server, reader: Reader): Promise<Readings> {
  const metrics = await reader.metrics();
  const own = process.cpuUsage();
  return {
    serverCpu: cpuSeconds(server.pid),
    threads: threadTimes(server.pid),
    serverDisk: diskBytes(server.pid),
    systemCpu: systemCpuSeconds(),
    ownCpu: (own.user + own.system) / 1e6,
    users: metrics.get('sluice_processed_users_total') ?? 0,
    transactions: metrics.get('sluice_processor_transactions_total') ?? 0,
    merges: metrics.get('sluice_merges_total') ?? 0,
  };
}

function busiest(before: Readings['threads'], after: Readings['threads']): ThreadTime[] {
  const times = [...after].map(([thread, { name, seconds }]) => ({
    name,
    seconds: seconds - (before.get(thread)?.seconds ?? 0),
  }));
  return times.filter(({ seconds }) => seconds > 0).sort((a, b) => b.seconds - a.seconds);
}

export function noiseOf(results: readonly Pick<StoredResult, 'cores' | 'otherCpu'>[]): Noise {
  return worstNoise(results.map(({ cores, otherCpu }) => ({ cores, otherCores: otherCpu })));
}

/** Whether the machine had other things to do, in words. */
export function disturbance(results: readonly Pick<StoredResult, 'cores' | 'otherCpu'>[]): string {
  return noiseText(noiseOf(results));
}
