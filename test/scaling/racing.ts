/**
 * Several real processors on one PostgreSQL store, each with partitions of a local log of its own, and a record of what
 * they did: which transaction took in which records, when it had looked everything up, when it began to commit. From that
 * follows an order in which one processor alone would have had to do the same.
 */

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { makeTables } from '../../src/backends/postgres/make-tables.ts';
import { openPool, type PostgresPool } from '../../src/backends/postgres/pool.ts';
import { openPostgresStore } from '../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../src/backends/postgres/store-writer.ts';
import { openSqliteStoreWriter } from '../../src/backends/embedded/store/writer.ts';
import type { LogReader, LogRecord } from '../../src/log.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { allocateMetrics, METRIC, metricsWriter, readCounter } from '../../src/telemetry/metrics.ts';
import { Processor } from '../../src/processor/processor.ts';
import type { Store } from '../../src/store.ts';
import { type StoreWriter, StoreUnavailableError, type WriteTransaction } from '../../src/store-writer.ts';
import { processBatch } from '../processor/process-batch.ts';
import { override } from '../override.ts';
import type { Random } from '../processor/history.ts';
import { openPartitionedLog } from '../processor/partitioned-log.ts';
import { PROCESSED_AT } from '../processor/processing.ts';
import { testPostgres } from '../servers/postgres.ts';
import { OPTIONS } from './two-stores.ts';

const APPLICATION = 'sluice racing';
/** Some records: a short log makes many transactions. */
const BATCH_BYTES = 1_500;
const KILL_EVERY_MS = 80;

/** A transaction that was committed, or may have been. */
interface Taken {
  readonly ranges: { readonly partition: number; readonly from: number; readonly to: number }[];
  /** Numbers that grow with time: when everything was looked up, and when the commit began. */
  lookedUpAt: number;
  commitsAt: number;
  isCertain: boolean;
  /** Match keys that it refused, and those that it gave a node. */
  readonly refused: Set<string>;
  readonly linked: Set<string>;
}

export interface Race {
  readonly store: Store;
  readonly writer: StoreWriter;
  readonly pool: PostgresPool;
  /** In an order that explains what the store holds. */
  readonly order: readonly Taken[];
  readonly conflicts: number;
  readonly kills: number;
}

export interface RaceSetup {
  readonly dataFolder: string;
  /** Each has a partition of its own, so there are as many partitions. */
  readonly processors: number;
  /** How many connections are cut meanwhile. */
  readonly kills?: number;
  /** What else happens until the race is over. */
  readonly meanwhile?: (store: Store, isOver: () => boolean) => Promise<void>;
  readonly random: Random;
}

/** Connections are cut at random: also the one that a pool is opened with. */
async function openDespiteKills(url: string): ReturnType<typeof openPool> {
  for (;;) {
    try {
      return await openPool({ url, max: 2, applicationName: APPLICATION });
    } catch (error) {
      if (!(error instanceof StoreUnavailableError)) throw error;
    }
  }
}

/** Until all partitions are used up. */
export async function race(scope: AsyncDisposableStack, setup: RaceSetup): Promise<Race> {
  const { dataFolder, processors, random } = setup;
  const url = await (await testPostgres()).newDatabase();
  const pool = await openPool({ url, max: 3, applicationName: 'sluice onlooker' });
  await makeTables(pool);
  const buffer = allocateMetrics(1);
  const log = openLog(dataFolder);
  scope.defer(() => log.close());
  const writer = openPostgresStoreWriter({ pool: pool.share(), logName: log.name });
  const store = openPostgresStore({ pool: pool.share(), logName: log.name });
  scope.defer(async () => {
    await store.close();
    await writer.close();
    await pool.close();
  });
  const taken: Taken[] = [];
  let isOver = false;
  const hasEnded = (): boolean => isOver;
  const runOne = async (partition: number): Promise<void> => {
    const { next: end } = await log.headers(partition, 0, Number.MAX_SAFE_INTEGER);
    const ownPool = await openDespiteKills(url);
    const own = recorded(openPostgresStoreWriter({ pool: ownPool, logName: log.name }), taken);
    const processor = new Processor({
      log: restricted(log, [partition]),
      writer: own,
      options: OPTIONS,
      metrics: metricsWriter(buffer, 0),
      logger: createLogger('silent', 'test'),
      now: () => PROCESSED_AT,
      waitForMore: () => Promise.resolve(),
      betweenTransactions: () => Promise.resolve(),
      isStoreShared: true,
    });
    try {
      // A processor that lost its connection stops draining; what is left is taken up by the next round. When another one
      // has failed the log is about to be removed, and its end would never be reached.
      while (!hasEnded() && !(await isAt(own, partition, end))) await processor.processAll();
    } finally {
      await own.close();
    }
  };
  const running = Array.from({ length: processors }, async (_, partition) => {
    try {
      await runOne(partition);
    } catch (error) {
      isOver = true;
      throw error;
    }
  });
  const killing = killConnections(pool, setup.kills ?? 0, random, hasEnded);
  const acting = setup.meanwhile?.(store, hasEnded);
  await Promise.allSettled(running);
  isOver = true;
  // All of them have ended, also when one has failed.
  await Promise.all(running);
  await acting;
  const kills = await killing;
  const order = serialOrder(certain(taken));
  return { store, writer, pool, order, conflicts: readCounter(buffer, METRIC.store_conflicts), kills };
}

function openLog(dataFolder: string): LogReader {
  return openPartitionedLog(dataFolder);
}

/** A member of a group of readers, to whom these partitions belong. */
function restricted(log: LogReader, own: number[]): LogReader {
  return override(log, {
    partitions: () => Promise.resolve(own),
    read: (partition, position) => log.read(partition, position, BATCH_BYTES),
    close: () => Promise.resolve(),
  });
}

async function isAt(writer: StoreWriter, partition: number, position: number): Promise<boolean> {
  try {
    return (await writer.processed()).positions.get(partition) === position;
  } catch (error) {
    if (error instanceof StoreUnavailableError) return false;
    throw error;
  }
}

async function killConnections(
  pool: PostgresPool,
  wanted: number,
  random: Random,
  isOver: () => boolean,
): Promise<number> {
  let kills = 0;
  while (kills < wanted && !isOver()) {
    await sleep(random() * KILL_EVERY_MS);
    const { rows } = await pool.query<{ done: boolean }>(
      `SELECT pg_terminate_backend(pid) AS done FROM pg_stat_activity
       WHERE datname = current_database() AND application_name = $1 AND xact_start IS NOT NULL
       ORDER BY random() LIMIT 1`,
      [APPLICATION],
    );
    kills += rows.filter(({ done }) => done).length;
  }
  return kills;
}

let moments = 0;

function recorded(writer: StoreWriter, taken: Taken[]): StoreWriter {
  return override(writer, { begin: async () => recordedTransaction(await writer.begin(), taken) });
}

function recordedTransaction(transaction: WriteTransaction, taken: Taken[]): WriteTransaction {
  const own: Taken = {
    ranges: [],
    lookedUpAt: 0,
    commitsAt: 0,
    isCertain: false,
    refused: new Set(),
    linked: new Set(),
  };
  return override(transaction, {
    advance: async (partition, from, to, lastTraceId) => {
      await transaction.advance(partition, from, to, lastTraceId);
      own.ranges.push({ partition, from, to });
    },
    lookUp: async (questions) => {
      const responses = await transaction.lookUp(questions);
      own.lookedUpAt = ++moments;
      return responses;
    },
    write: async (batches, at) => {
      for (const { tenantId, changes } of batches) {
        for (const { key } of changes.refusals) own.refused.add(`${tenantId} ${key.type} ${key.value}`);
        for (const { key } of changes.identifiers) own.linked.add(`${tenantId} ${key.type} ${key.value}`);
      }
      await transaction.write(batches, at);
    },
    deadLetter: async (header, _record, cause) => assert.fail(`${header.traceId} failed: ${cause}`),
    noteLost: async () => assert.fail('records were lost'),
    commit: async (durable) => {
      own.commitsAt = ++moments;
      if (own.ranges.length > 0) taken.push(own);
      await transaction.commit(durable);
      own.isCertain = true;
    },
  });
}

/** After a commit without a response, the next transaction shows whether it happened: it begins there again, or behind. */
function certain(taken: readonly Taken[]): Taken[] {
  const placeOf = ({ ranges }: Taken): string => ranges.map(({ partition, from }) => `${partition}/${from}`).join();
  const byPlace = Map.groupBy(taken, placeOf);
  return [...byPlace.values()].map((tries) => tries.find(({ isCertain }) => isCertain) ?? (tries.at(-1) as Taken));
}

/**
 * Who committed before another had looked everything up comes first: the other may have seen it. And who refused a key
 * that had no node comes before the one who gave it a node meanwhile.
 */
function serialOrder(taken: readonly Taken[]): Taken[] {
  const isBefore = (one: Taken, other: Taken): boolean =>
    one.commitsAt < other.lookedUpAt || (other.commitsAt > one.lookedUpAt && !one.refused.isDisjointFrom(other.linked));
  const left = taken.toSorted((a, b) => a.commitsAt - b.commitsAt);
  const order: Taken[] = [];
  while (left.length > 0) {
    const next = left.findIndex((one) => left.every((other) => other === one || !isBefore(other, one)));
    assert.ok(next >= 0, 'transactions depend on each other in a circle: no serial order explains them');
    order.push(...left.splice(next, 1));
  }
  return order;
}

/** The same records in that order, through one processor's steps, into an SQLite store. */
export async function replay(dataFolder: string, storeFile: string, order: readonly Taken[]): Promise<void> {
  const log = openLog(dataFolder);
  const writer = openSqliteStoreWriter({ file: storeFile });
  try {
    for (const { ranges } of order) {
      const transaction = await writer.begin();
      const records: LogRecord[] = [];
      for (const { partition, from, to } of ranges) {
        await transaction.advance(partition, from, to);
        const batch = await log.read(partition, from, Number.MAX_SAFE_INTEGER);
        records.push(...batch.records.filter(({ position }) => position < to));
      }
      await processBatch(transaction, records, {
        options: OPTIONS,
        now: () => PROCESSED_AT,
        failpoint: () => undefined,
      });
      await transaction.commit(false);
    }
  } finally {
    await writer.close();
    await log.close();
  }
}
