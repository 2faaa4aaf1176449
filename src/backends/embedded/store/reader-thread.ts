/**
 * The thread that reads the store for a server: SQLite's calls block, and an edge must never be blocked. Runs queries
 * in the order in which they arrive, and continues with others while a change (erase, unmerge, jobs) waits for the
 * write lock.
 */

import { parentPort, workerData } from 'node:worker_threads';
import type { MatchOptions } from '../../../identity/match-keys.ts';
import { withPendingRecords } from '../../../views/reading.ts';
import { logFolderOf, storeFileOf } from '../../../data-folder/files.ts';
import { BadCursorError, type Store } from '../../../store.ts';
import { isRetryable } from '../../../runtime/unavailable.ts';
import { WriteLockRequest } from '../../../runtime/write-lock-request.ts';
import { openEmbeddedLogReader } from '../log/reader.ts';
import { openSqliteStore } from './store.ts';
import { messageOf } from '../../../errors.ts';

export interface StoreThreadSetup {
  readonly dataFolder: string;
  readonly matchOptions?: MatchOptions;
  /** Memory of the `WriteLockRequest`; without it, erases and unmerges wait for a pause of the processor. */
  readonly writeLockRequest?: SharedArrayBuffer | undefined;
}

export type StoreMethod = Exclude<keyof Store, 'close'>;

export interface StoreCall {
  readonly id: number;
  readonly method: StoreMethod;
  readonly args: readonly unknown[];
}

/** Classes of errors do not survive the transfer between threads, so they are named. */
export interface FailedCall {
  readonly id: number;
  readonly error: 'bad_cursor' | 'unavailable' | 'bug';
  readonly message: string;
}

export type StoreReply = FailedCall | { readonly id: number; readonly value: unknown };

function kindOf(error: unknown): FailedCall['error'] {
  if (error instanceof BadCursorError) return 'bad_cursor';
  return isRetryable(error) ? 'unavailable' : 'bug';
}

function run(setup: StoreThreadSetup): void {
  const { dataFolder, ...options } = setup;
  const writeLockRequest = options.writeLockRequest && new WriteLockRequest(options.writeLockRequest);
  const log = openEmbeddedLogReader({ folder: logFolderOf(dataFolder) });
  const store = withPendingRecords(openSqliteStore(storeFileOf(dataFolder), { ...options, writeLockRequest }), log);
  const reply = (message: StoreReply): void => parentPort?.postMessage(message);
  parentPort?.on('message', (call: StoreCall | 'close') => {
    if (call === 'close') {
      void store.close().then(() => parentPort?.close());
      return;
    }
    const query = store[call.method] as (...values: readonly unknown[]) => Promise<unknown>;
    query(...call.args).then(
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
