/**
 * A thread that copies the write-ahead log of the store into its file, so that the processor goes on meanwhile: of a large
 * transaction that takes as long as making it did. Copies up to where it can without waiting for anybody; the processor begins the
 * write-ahead log anew when all of it was copied.
 *
 * On a full disk, or with too many open files, the write-ahead log stays as it is, and is copied later. Any other error ends the thread and the process: SQLite
 * uses a write-ahead log again once it was copied and synced, so a sync that failed must not be followed by one that seems to work.
 */

import type { DatabaseSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';
import { OperatorError } from '../../../errors.ts';
import { yieldToOthers } from '../../../threads.ts';
import { isOutOfFiles } from '../disk.ts';
import { openStoreFile } from './schema.ts';

export interface CopierSetup {
  readonly file: string;
}

export type CopierRequest = 'copy' | 'close';

if (parentPort !== null) start();

function start(): void {
  const { file } = workerData as CopierSetup;
  /** Opened when there is something to copy: what cannot be opened now, perhaps can be the next time. */
  let database: DatabaseSync | undefined;
  yieldToOthers();
  parentPort?.on('message', (request: CopierRequest) => {
    if (request === 'close') {
      database?.close();
      parentPort?.close();
      return;
    }
    try {
      database ??= openStoreFile(file, 'reader');
      database.exec('PRAGMA wal_checkpoint(PASSIVE)');
    } catch (error) {
      if (!isOutOfFiles(error instanceof OperatorError ? error.cause : error)) throw error;
    }
    parentPort?.postMessage('copied');
  });
}
