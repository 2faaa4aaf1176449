/**
 * Checkpoints: copies write-ahead logs into their database files, one after the other. A server has one thread for it,
 * for the segments of the event log and for the store, so that no commit waits for a checkpoint; its clients
 * (`checkpoint-client.ts`) reach it by message ports.
 *
 * A file that cannot be checkpointed now (the disk is full, another connection blocks it) keeps its write-ahead log,
 * and the client asks again. After any other error nothing is checkpointed or closed any more, and the process has to
 * end: SQLite reuses a write-ahead log once it is copied and synced, so a failed sync must not be followed by one that
 * seems to work.
 */

import { existsSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import type { MessagePort } from 'node:worker_threads';
import { isBusy, refuseForeignWal } from './database.ts';
import { isOutOfFiles } from './disk.ts';
import { messageOf } from '../../errors.ts';

/** `PASSIVE` copies what it can without waiting, `TRUNCATE` all of it, and empties the write-ahead log. */
export interface CheckpointRequest {
  readonly file: string;
  readonly mode: 'PASSIVE' | 'TRUNCATE';
}

/** Short: a long read of one segment must not delay all other files. */
const BUSY_TIMEOUT_MS = 100;

export class Checkpointer {
  /**
   * By file. Kept open until the write-ahead log is empty or the client closes, so that a file put in its place is not
   * touched.
   */
  readonly #connections = new Map<string, DatabaseSync>();

  /** Whether it is done; false means later. Throws errors for which the process has to end. */
  checkpoint({ file, mode }: CheckpointRequest): boolean {
    try {
      // A processed segment may have been removed.
      const isGone = !existsSync(file);
      const database = isGone ? undefined : (this.#connections.get(file) ?? this.#open(file));
      const row = database?.prepare(`PRAGMA wal_checkpoint(${mode})`).get();
      if (mode === 'TRUNCATE' || isGone) this.#close(file);
      return mode === 'PASSIVE' || isGone || row?.['busy'] === 0;
    } catch (error) {
      if (!isBusy(error) && !isOutOfFiles(error)) throw error;
      this.#close(file);
      return false;
    }
  }

  close(): void {
    for (const file of this.#connections.keys()) this.#close(file);
  }

  #open(file: string): DatabaseSync {
    refuseForeignWal({ file, name: 'database' });
    const url = pathToFileURL(file);
    url.searchParams.set('mode', 'rw');
    const database = new DatabaseSync(url, { timeout: BUSY_TIMEOUT_MS });
    this.#connections.set(file, database);
    database.exec('PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0');
    return database;
  }

  #close(file: string): void {
    this.#connections.get(file)?.close();
    this.#connections.delete(file);
  }
}

/**
 * The thread: returns the function to call with the port of each client. `onFailed` is called once, and clients get no
 * reply.
 */
export function serveCheckpoints(onFailed: (message: string) => void): (port: MessagePort) => void {
  let hasFailed = false;
  return (port) => {
    const checkpointer = new Checkpointer();
    port.on('message', (request: CheckpointRequest | 'close') => {
      if (hasFailed) return;
      try {
        if (request === 'close') checkpointer.close();
        port.postMessage(request === 'close' || checkpointer.checkpoint(request));
      } catch (error) {
        hasFailed = true;
        const what = request === 'close' ? 'closing a file' : `the checkpoint of ${request.file}`;
        onFailed(`${what} failed: ${messageOf(error)}`);
      }
    });
  };
}
