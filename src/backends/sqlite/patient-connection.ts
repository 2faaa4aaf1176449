/**
 * A connection to a SQLite file that other threads and processes write as well, in a thread that must not stand still:
 * an edge takes events, whoever holds the lock of the keys. While the file is locked, work is tried again every RETRY_MS
 * for as long as BUSY_TIMEOUT_MS, and the thread does other things in between. Each attempt is finished before anything
 * else runs, and is all or nothing. Writes go one after the other, so that of many which wait only one asks for the lock.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { DatabaseSync } from 'node:sqlite';
import { BUSY_TIMEOUT_MS, isBusy, RETRY_MS, transactionIfFree } from './database.ts';

export class PatientConnection {
  readonly database: DatabaseSync;
  /** Of the write that was asked for last; never rejects. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(database: DatabaseSync) {
    this.database = database;
    // SQLite waits by putting the thread to sleep.
    database.exec('PRAGMA busy_timeout = 0');
  }

  /** `work` may be called several times. */
  read<T>(work: () => T): Promise<T> {
    return whenFree(work, performance.now() + BUSY_TIMEOUT_MS);
  }

  /** In a transaction of its own. `work` may be called several times; what it wrote counts once. */
  write<T>(work: () => T): Promise<T> {
    return this.#inTurn(() => transactionIfFree(this.database, work));
  }

  /** Like `write`, but a power loss may take it. */
  writeUnsynced<T>(work: () => T): Promise<T> {
    return this.#inTurn(() => {
      this.database.exec('PRAGMA synchronous = NORMAL');
      try {
        return transactionIfFree(this.database, work);
      } finally {
        this.database.exec('PRAGMA synchronous = FULL');
      }
    });
  }

  close(): void {
    if (this.database.isOpen) this.database.close();
  }

  #inTurn<T>(attempt: () => T): Promise<T> {
    const giveUpAt = performance.now() + BUSY_TIMEOUT_MS;
    const done = this.#turn.then(() => whenFree(attempt, giveUpAt));
    this.#turn = done.catch(() => {});
    return done;
  }
}

async function whenFree<T>(attempt: () => T, giveUpAt: number): Promise<T> {
  for (;;) {
    try {
      return attempt();
    } catch (error) {
      if (!isBusy(error) || performance.now() > giveUpAt) throw error;
      await sleep(RETRY_MS);
    }
  }
}
