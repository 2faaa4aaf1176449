/**
 * Sends a population's requests to a server and waits until every event of them can be read back: the measurement that
 * end-to-end, growth, merge-storm and cpu share. Time counts from the first request to the first response of
 * `GET /ledger` that has all of them stored and none pending. It fails when anything but a 202 came back, or when
 * more or fewer events are stored than were sent.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { Context, StoredResult } from './context.ts';
import { type Population, USERS_PER_REQUEST } from './people-generator.ts';
import { assertAllAccepted } from './generator.ts';
import { noiseText, worstNoise } from './noise.ts';
import { cpuReading, cpuUsed, diskBytes, residentMegabytes, threadTimes, type ThreadTime } from './proc.ts';
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
  const edge = await context.generator.run(
    server,
    {
      requests: { population, sizes: [USERS_PER_REQUEST] },
      connections: CONNECTIONS,
      end: { requests: Math.ceil(users / USERS_PER_REQUEST) },
    },
    PATIENCE_SECONDS + users / EVENTS_PER_SECOND_MIN,
  );
  assertAllAccepted(server.name, edge);
  await waitUntilStored(reader, { before: storedBefore, sent: edge.users });
  const endedAt = performance.timeOrigin + performance.now();
  const after = await readings(server, reader);

  const seconds = (endedAt - edge.startedAt) / 1000;
  const transactions = after.transactions - before.transactions;
  const used = cpuUsed(before.cpu, after.cpu, edge.generatorCpuSeconds);
  const cores = Math.min(coresBefore, await context.capacity.now());
  return {
    events: edge.users,
    seconds,
    perSecond: edge.users / seconds,
    edge,
    serverCpuSeconds: used.servers,
    threads: busiest(before.threads, after.threads),
    serverDiskBytes: after.serverDisk - before.serverDisk,
    serverMegabytes: residentMegabytes(server.pid).peak,
    transactions,
    usersPerTransaction: (after.users - before.users) / transactions,
    merges: after.merges - before.merges,
    noise: { cores, otherCores: used.others / seconds },
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
    await sleep(POLL_MILLISECONDS);
  }
}

async function readings(server: Server, reader: Reader) {
  const metrics = await reader.metrics();
  return {
    cpu: cpuReading(server.pid),
    threads: threadTimes(server.pid),
    serverDisk: diskBytes(server.pid),
    users: metrics.get('sluice_processed_users_total') ?? 0,
    transactions: metrics.get('sluice_processor_transactions_total') ?? 0,
    merges: metrics.get('sluice_merges_total') ?? 0,
  };
}

function busiest(before: ReadonlyMap<string, ThreadTime>, after: ReadonlyMap<string, ThreadTime>): ThreadTime[] {
  const times = [...after].map(([thread, { name, seconds }]) => ({
    name,
    seconds: seconds - (before.get(thread)?.seconds ?? 0),
  }));
  return times.filter(({ seconds }) => seconds > 0).sort((a, b) => b.seconds - a.seconds);
}

/** Whether the machine had other things to do, in words. */
export function disturbance(results: readonly StoredResult[]): string {
  return noiseText(worstNoise(results.map(({ noise }) => noise)));
}
