/**
 * A thread that copies the WAL of a finished segment into its database file, so that the thread that commits never
 * waits for it. A segment that cannot be sealed yet (the disk is full, someone reads it) keeps its WAL, stays readable,
 * and is tried again later. Any other error is for the writer to end the process over: SQLite removes a WAL once it is
 * copied and synced, so a sync that failed must not be followed by one that seems to work.
 */

import { existsSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { parentPort } from 'node:worker_threads';
import { isOutOfFiles } from './disk.ts';

export interface SealRequest {
  readonly file: string;
}

export interface SealReply {
  readonly file: string;
  readonly outcome: 'sealed' | 'later' | 'failed';
  readonly message: string;
}

const BUSY_TIMEOUT_MS = 5_000;

class Sealer {
  /** Never closed: the last connection to close a file tries to seal it again. */
  readonly #failed: DatabaseSync[] = [];

  seal(file: string): SealReply {
    let database: DatabaseSync | undefined;
    try {
      // Removed meanwhile, because it is processed: SQLite would make a new, empty file.
      if (!existsSync(file)) return { file, outcome: 'sealed', message: '' };
      const url = pathToFileURL(file);
      url.searchParams.set('mode', 'rw');
      database = new DatabaseSync(url, { timeout: BUSY_TIMEOUT_MS });
      database.exec('PRAGMA synchronous = FULL');
      const { busy } = database.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get() as { busy: number };
      database.close();
      return { file, outcome: busy === 0 ? 'sealed' : 'later', message: '' };
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      if (isOutOfFiles(error)) {
        database?.close();
        return { file, outcome: 'later', message };
      }
      if (database) this.#failed.push(database);
      return { file, outcome: 'failed', message };
    }
  }
}

const sealer = new Sealer();
parentPort?.on('message', ({ file }: SealRequest) => parentPort?.postMessage(sealer.seal(file)));
