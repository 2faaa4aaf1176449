/**
 * A thread that copies the WAL of a finished segment into its database file, so that the thread that commits never
 * waits for it. A segment that cannot be sealed (say, the disk is full) keeps its WAL and stays readable; the next
 * start tries again.
 */

import { DatabaseSync } from 'node:sqlite';
import { parentPort } from 'node:worker_threads';

export interface SealRequest {
  readonly file: string;
}

export interface SealReply {
  readonly file: string;
  readonly error: string | null;
}

function seal(file: string): string | null {
  try {
    const database = new DatabaseSync(file, { timeout: 5_000 });
    try {
      database.exec('PRAGMA synchronous = FULL; PRAGMA wal_checkpoint(TRUNCATE)');
    } finally {
      database.close();
    }
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

parentPort?.on('message', ({ file }: SealRequest) => {
  const reply: SealReply = { file, error: seal(file) };
  parentPort?.postMessage(reply);
});
