/**
 * Fills the store of a data folder for the benchmark of growth, without HTTP and without the log: bodies of a population go
 * through the processor's own steps, in batches and transactions as
 * large as its own, so that the store is what a server would have made of the same requests. Times of receipt advance
 * evenly. No server may run on the folder. `node bench/fill.ts JSON`, see `FillJob`; prints a `FillResult`.
 */

import { openSqliteKeyStore } from '../src/backends/embedded/keys.ts';
import { openSqliteStoreWriter } from '../src/backends/embedded/store/writer.ts';
import { keyFileOf, storeFileOf } from '../src/data-folder/files.ts';
import { createTraceIds } from '../src/edge/trace-id.ts';
import { hashKey } from '../src/keys/format.ts';
import type { LogBatch, LogRecord } from '../src/log.ts';
import { tenantOf } from '../src/model.ts';
import { processPrepared } from '../src/processor/batch.ts';
import { BATCH_BYTES_MAX } from '../src/processor/processor.ts';
import { prepareRecord } from '../src/processor/prepare.ts';
import type { ApiKey } from '../src/keys.ts';
import { type Population, RequestMaker, USERS_PER_REQUEST } from './people-generator.ts';

export interface FillJob {
  readonly folder: string;
  /** Whose tenant the data is for. */
  readonly key: string;
  readonly population: Population;
  readonly users: number;
  /** Times of receipt of the first and the last, in milliseconds since 1970. */
  readonly from: number;
  readonly to: number;
}

export interface FillResult {
  readonly seconds: number;
  readonly events: number;
}

/** What the processor takes into one at most. */
const TRANSACTION_USERS = 100_000;
const PARTITION = 0;
const OPTIONS = { defaultCountry: null, junkValues: new Set<string>() };

type KeyOfTenant = Pick<ApiKey, 'id' | 'kind' | 'accountId' | 'environment'>;

async function fill(job: FillJob): Promise<FillResult> {
  const startedAt = performance.now();
  const keyStore = openSqliteKeyStore(keyFileOf(job.folder));
  const found = await keyStore.findByHash(hashKey(job.key));
  if (found === undefined) throw new Error('the key is not in the data folder');
  const read = populationReader(job, found);
  const writer = openSqliteStoreWriter({ file: storeFileOf(job.folder) });
  let position = 0;
  let events = 0;
  let isEnd = false;
  while (!isEnd) {
    const transaction = await writer.begin();
    for (let users = 0; users < TRANSACTION_USERS && !isEnd; ) {
      const { records, next } = read(position, BATCH_BYTES_MAX);
      isEnd = next === position;
      position = next;
      const now = (): number => records.at(-1)?.receivedAt ?? job.to;
      const prepared = records.map((record) => prepareRecord(record, OPTIONS));
      const counts = await processPrepared(transaction, prepared, { now, failpoint: () => undefined });
      users += counts.users;
      events += counts.events;
    }
    // The position in the log stays where it is: none of this was in the log.
    await transaction.commit(isEnd);
  }
  await writer.close();
  await keyStore.close();
  return { seconds: (performance.now() - startedAt) / 1000, events };
}

/** A population in place of a log. Its requests are made one after the other, and only once. */
function populationReader(job: FillJob, key: KeyOfTenant): (position: number, bytesMax: number) => LogBatch {
  const maker = new RequestMaker(job.population, [USERS_PER_REQUEST], () => '');
  const requests = Math.ceil(job.users / USERS_PER_REQUEST);
  const step = (job.to - job.from) / requests;
  let clock = job.from;
  const traceIds = createTraceIds(() => Math.floor(clock));
  let made = 0;
  const recordAt = (position: number): LogRecord => {
    clock += step;
    return {
      partition: PARTITION,
      position,
      traceId: traceIds(),
      tenantId: tenantOf(key.accountId, key.environment),
      receivedAt: Math.floor(clock),
      keyId: key.id,
      keyKind: key.kind,
      idempotencyKey: null,
      body: maker.next(clock).bytes,
      firstUserIndex: 0,
      userCount: USERS_PER_REQUEST,
      eventCount: USERS_PER_REQUEST,
      rejections: [],
    };
  };
  return (position, bytesMax) => {
    if (position !== made) throw new Error(`request ${position} is wanted, and ${made} is next`);
    const records: LogRecord[] = [];
    for (let bytes = 0; bytes < bytesMax && position + records.length < requests; ) {
      const record = recordAt(position + records.length);
      bytes += record.body.byteLength;
      records.push(record);
    }
    made += records.length;
    return { records, next: made };
  };
}

const result = await fill(JSON.parse(process.argv[2] ?? '') as FillJob);
console.log(JSON.stringify(result));
