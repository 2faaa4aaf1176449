/**
 * The thread that reads the store for a server: SQLite's calls block, and an edge must never be blocked. Runs queries
 * in the order in which they arrive, and continues with others while an erase or unmerge waits for the write lock.
 */

import { parentPort, workerData } from 'node:worker_threads';
import type { MatchOptions } from '../../../identity/match-keys.ts';
import { LogCorruptError, LogUnavailableError } from '../../../log.ts';
import { createReading } from '../../../views/reading.ts';
import { BadCursorError, type Store } from '../../../store.ts';
import { StoreUnavailableError } from '../../../store-writer.ts';
import { WriteTurn } from '../../../runtime/write-turn.ts';
import { openSqliteLogReader } from '../log/reader.ts';
import { openSqliteStore } from './store.ts';
import { messageOf } from '../../../errors.ts';

export interface StoreThreadSetup {
  readonly storeFile: string;
  readonly logFolder: string;
  readonly matchOptions: MatchOptions;
  readonly writeTurn: SharedArrayBuffer | undefined;
}

export type StoreMethod = Exclude<keyof Store, 'close'>;

export interface StoreCall {
  readonly id: number;
  readonly method: StoreMethod;
  readonly args: readonly unknown[];
}

/** Classes of errors do not survive the transfer between threads, so they are named. */
export type StoreReply =
  | { readonly id: number; readonly value: unknown }
  | { readonly id: number; readonly error: 'bad_cursor' | 'unavailable' | 'bug'; readonly message: string };

function callMethod(store: Store, { method, args }: StoreCall): Promise<unknown> {
  const query = store[method] as (...values: readonly unknown[]) => Promise<unknown>;
  return query(...args);
}

function kindOf(error: unknown): 'bad_cursor' | 'unavailable' | 'bug' {
  if (error instanceof BadCursorError) return 'bad_cursor';
  const isUnavailable =
    error instanceof StoreUnavailableError || error instanceof LogUnavailableError || error instanceof LogCorruptError;
  return isUnavailable ? 'unavailable' : 'bug';
}

function run(setup: StoreThreadSetup): void {
  const { storeFile, logFolder, matchOptions } = setup;
  const writeTurn = setup.writeTurn && new WriteTurn(setup.writeTurn);
  // This reader removes nothing from the log: it never commits a position.
  const log = openSqliteLogReader({ folder: logFolder, retentionMs: Number.MAX_SAFE_INTEGER, now: Date.now });
  const store = createReading(openSqliteStore(storeFile, { matchOptions, writeTurn }), log);
  const reply = (message: StoreReply): void => parentPort?.postMessage(message);
  parentPort?.on('message', (call: StoreCall | 'close') => {
    if (call === 'close') {
      void store.close().then(() => parentPort?.close());
      return;
    }
    callMethod(store, call).then(
      (value) => reply({ id: call.id, value }),
      (error: unknown) => {
        const isForClients = error instanceof BadCursorError;
        const message = error instanceof Error && !isForClients ? (error.stack ?? error.message) : messageOf(error);
        reply({ id: call.id, error: kindOf(error), message });
      },
    );
  });
}

run(workerData as StoreThreadSetup);
