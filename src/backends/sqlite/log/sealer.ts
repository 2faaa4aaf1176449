/**
 * A thread that copies the WAL of a segment into its database file, so that the thread that commits never waits for it:
 * a little at a time while the segment is written (`copy`), because one copy of a whole segment would keep the disk busy
 * for so long that commits wait for it, and the rest when it is full (`seal`). A segment that cannot be sealed yet (the
 * disk is full, someone reads it) keeps its WAL, stays readable, and is tried again later. Any other error is for the
 * writer to end the process over: SQLite reuses a WAL once it is copied and synced, so a sync that failed must not be
 * followed by one that seems to work.
 */

import { existsSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { parentPort } from 'node:worker_threads';
import { isOutOfFiles } from '../disk.ts';

export interface SealRequest {
  readonly file: string;
  readonly work: 'copy' | 'seal';
}

export interface SealReply extends SealRequest {
  readonly outcome: 'done' | 'later' | 'failed';
  readonly message: string;
}

const BUSY_TIMEOUT_MS = 5_000;

class Sealer {
  /** Of the segments that are being copied. Those that failed stay here and open: closing would try to copy again. */
  readonly #connections = new Map<string, DatabaseSync>();

  handle({ file, work }: SealRequest): SealReply {
    const reply = (outcome: SealReply['outcome'], message = ''): SealReply => ({ file, work, outcome, message });
    try {
      // Removed meanwhile, because it is processed: SQLite would make a new, empty file.
      if (!existsSync(file)) return reply('done');
      const database = this.#connections.get(file) ?? open(file);
      this.#connections.set(file, database);
      if (work === 'copy') {
        database.exec('PRAGMA wal_checkpoint(PASSIVE)');
        return reply('done');
      }
      const { busy } = database.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get() as { busy: number };
      this.#close(file);
      return reply(busy === 0 ? 'done' : 'later');
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      if (!isOutOfFiles(error)) return reply('failed', message);
      this.#close(file);
      return reply('later', message);
    }
  }

  #close(file: string): void {
    this.#connections.get(file)?.close();
    this.#connections.delete(file);
  }
}

function open(file: string): DatabaseSync {
  const url = pathToFileURL(file);
  url.searchParams.set('mode', 'rw');
  const database = new DatabaseSync(url, { timeout: BUSY_TIMEOUT_MS });
  database.exec('PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0');
  return database;
}

const sealer = new Sealer();
parentPort?.on('message', (request: SealRequest) => parentPort?.postMessage(sealer.handle(request)));
