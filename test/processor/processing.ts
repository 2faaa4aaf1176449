/**
 * The real parts that process a log, put together as the server does it but without threads and with the clock of the
 * test: appender, reader, store writer, processor. Each call opens what it needs and closes it again.
 */

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { openEmbeddedLogAppender } from '../../src/backends/embedded/log/appender.ts';
import { openSqliteStore } from '../../src/backends/embedded/store/store.ts';
import { openSqliteStoreWriter, type StoreWriterSetup } from '../../src/backends/embedded/store/writer.ts';
import { storeFileOf } from '../../src/data-folder/files.ts';
import type { LogEntry } from '../../src/log.ts';
import { createLogger, type Logger } from '../../src/telemetry/logger.ts';
import { allocateMetrics, metricsWriter } from '../../src/telemetry/metrics.ts';
import { openPartitionedLog, partitionFolderOf } from './partitioned-log.ts';
import { Processor, type ProcessorParts } from '../../src/processor/processor.ts';
import type { Store } from '../../src/store.ts';

const SEGMENT_BYTES = 8 * 1_024 * 1_024;
const APPENDS_AT_ONCE = 1_000;

/** When everything is processed, unless a test says otherwise; far from every time of receipt. */
export const PROCESSED_AT = Date.UTC(2026, 5, 1);

export async function appendAll(dataFolder: string, entries: readonly LogEntry[], partition = 0): Promise<void> {
  const folder = partitionFolderOf(dataFolder, partition);
  mkdirSync(folder, { recursive: true });
  const appender = await openEmbeddedLogAppender({
    folder,
    segmentBytes: SEGMENT_BYTES,
    metrics: null,
    onFatal: assert.fail,
  });
  for (let start = 0; start < entries.length; start += APPENDS_AT_ONCE) {
    const some = entries.slice(start, start + APPENDS_AT_ONCE);
    // Bodies are taken over by the appender, and tests look at theirs again.
    await Promise.all(some.map((entry) => appender.append({ ...entry, body: entry.body.slice() })));
  }
  await appender.close();
}

export interface Processing extends Partial<ProcessorParts> {
  readonly storeFile?: string;
  readonly groupEvents?: number;
  readonly profileSizes?: StoreWriterSetup['profileSizes'];
}

/** So small that a short log makes many batches, transactions and groups of events. */
export const KILLED_PROCESSING: Processing = {
  batchBytesMax: 2_500,
  transactionUsersMax: 30,
  groupEvents: 70,
  profileSizes: { fanOut: 2, blockRows: 8, mergedBytesMin: 500 },
};

/** Until the log is used up. */
export async function processAll(dataFolder: string, processing: Processing = {}): Promise<void> {
  const { storeFile = storeFileOf(dataFolder), groupEvents, profileSizes, ...parts } = processing;
  const options = parts.options ?? { defaultCountry: null, junkValues: new Set() };
  const writer = openSqliteStoreWriter({
    file: storeFile,
    ...(groupEvents !== undefined && { groupEvents }),
    ...(profileSizes !== undefined && { profileSizes }),
  });
  const log = openPartitionedLog(dataFolder);
  try {
    const processor = new Processor({
      log,
      writer,
      options,
      metrics: metricsWriter(allocateMetrics(1), 0),
      logger: createLogger('silent', 'test'),
      now: () => PROCESSED_AT,
      waitForMore: () => Promise.resolve(),
      betweenTransactions: () => Promise.resolve(),
      ...parts,
    });
    await processor.processAll();
  } finally {
    await writer.close();
    await log.close();
  }
}

export async function withStore<T>(storeFile: string, use: (store: Store) => Promise<T>): Promise<T> {
  const store = openSqliteStore(storeFile);
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}

/** A logger whose lines can be read. */
export function rememberingLogger(): { logger: Logger; lines: string[] } {
  const lines: string[] = [];
  const logger = createLogger('silent', 'test');
  for (const level of ['info', 'warn', 'error', 'fatal'] as const) {
    logger[level] = (...reported: unknown[]) => void lines.push(`${level} ${JSON.stringify(reported, plainErrors)}`);
  }
  return { logger, lines };
}

function plainErrors(_name: string, value: unknown): unknown {
  return value instanceof Error ? { message: value.message, stack: value.stack, cause: value.cause } : value;
}

export function storeCopyOf(dataFolder: string, name: string): string {
  return join(dataFolder, `${name}.db`);
}
