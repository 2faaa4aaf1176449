/**
 * Fills the store of a data folder for the benchmark of growth, without HTTP and without the log: bodies of a crowd go
 * through the processor's own steps, in batches and transactions as large as its own, so that the store is what a
 * server would have made of the same requests. Times of receipt advance evenly. No server may run on the folder.
 * `node bench/fill.ts JSON`, see `FillJob`; prints a `FillResult`.
 */

import { openSqliteKeyStore } from '../src/backends/sqlite/keys.ts';
import { openSqliteStoreWriter } from '../src/backends/sqlite/store-writer.ts';
import { keyFileOf, storeFileOf } from '../src/data-folder.ts';
import { createTraceIds } from '../src/edge/trace-id.ts';
import { hashKey } from '../src/keys/format.ts';
import type { LogRecord } from '../src/log.ts';
import { tenantOf } from '../src/model.ts';
import { processBatch } from '../src/processor/batch.ts';
import { type Crowd, RequestMaker, USERS_PER_REQUEST } from './crowd.ts';

export interface FillJob {
  readonly folder: string;
  /** Whose tenant the data is for. */
  readonly key: string;
  readonly crowd: Crowd;
  readonly users: number;
  /** Times of receipt of the first and the last, in milliseconds since 1970. */
  readonly from: number;
  readonly to: number;
}

export interface FillResult {
  readonly seconds: number;
  readonly events: number;
}

const BATCH_REQUESTS = 27;
const TRANSACTION_USERS = 50_000;
const OPTIONS = { defaultCountry: null, junkValues: new Set<string>() };

async function fill(job: FillJob): Promise<FillResult> {
  const startedAt = performance.now();
  const keyStore = openSqliteKeyStore(keyFileOf(job.folder));
  const key = await keyStore.findByHash(hashKey(job.key));
  if (key === undefined) throw new Error('the key is not in the data folder');
  const writer = openSqliteStoreWriter({ file: storeFileOf(job.folder) });
  const maker = new RequestMaker(job.crowd, USERS_PER_REQUEST, () => '');
  let clock = job.from;
  const traceIds = createTraceIds(() => Math.floor(clock));
  const requests = Math.ceil(job.users / USERS_PER_REQUEST);
  const step = (job.to - job.from) / requests;
  const nextRecord = (): LogRecord => {
    clock += step;
    return {
      partition: 0,
      position: 0,
      traceId: traceIds(),
      tenantId: tenantOf(key.accountId, key.environment),
      receivedAt: Math.floor(clock),
      keyId: key.id,
      keyKind: key.kind,
      idempotencyKey: null,
      body: maker.next(clock),
      firstUserIndex: 0,
      userCount: USERS_PER_REQUEST,
      eventCount: USERS_PER_REQUEST,
      rejections: [],
    };
  };
  const context = { options: OPTIONS, now: () => Math.floor(clock), failpoint: () => undefined };
  let made = 0;
  let events = 0;
  while (made < requests) {
    const transaction = await writer.begin();
    const end = Math.min(requests, made + TRANSACTION_USERS / USERS_PER_REQUEST);
    while (made < end) {
      const records = Array.from({ length: Math.min(BATCH_REQUESTS, end - made) }, nextRecord);
      made += records.length;
      events += (await processBatch(transaction, records, context)).events;
    }
    // The position in the log stays where it is: none of this was in the log.
    await transaction.commit(made === requests);
  }
  await writer.close();
  await keyStore.close();
  return { seconds: (performance.now() - startedAt) / 1000, events };
}

const result = await fill(JSON.parse(process.argv[2] ?? '') as FillJob);
console.log(JSON.stringify(result));
