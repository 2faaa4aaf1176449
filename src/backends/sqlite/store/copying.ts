/**
 * The writer's side of copying the store's write-ahead log into its file. With a thread for it (`store/copier.ts`) a
 * transaction is copied while the next one is made; without one, as in tools and tests, SQLite copies it within the commit.
 *
 * SQLite begins the write-ahead log anew only in a transaction that finds all of it copied when it begins. So once it has grown
 * to `WAL_PAGES_MAX`, a commit waits until that is so.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { Worker } from 'node:worker_threads';
import { isThreadUnavailable, threadFile } from '../../../threads.ts';
import type { CopierRequest, CopierSetup } from './copier.ts';
import { WAL_PAGES } from './schema.ts';

/** 128 MB: some transactions under load, so that few of them wait. */
const WAL_PAGES_MAX = 16_384;

export class StoreCopying {
  readonly #pages: StatementSync;
  readonly #setup: CopierSetup;
  /** Started when there is something to copy. */
  #thread: Worker | undefined;
  #underWay: Promise<void> | undefined;
  #done: () => void = () => undefined;

  constructor(database: DatabaseSync, setup: CopierSetup) {
    database.exec('PRAGMA wal_autocheckpoint = 0');
    this.#pages = database.prepare('PRAGMA wal_checkpoint(NOOP)');
    this.#setup = setup;
  }

  /** To be called after each commit. Resolves at once unless the write-ahead log is to begin anew. */
  async committed(): Promise<void> {
    const { log, uncopied } = this.#size();
    if (uncopied < WAL_PAGES) return;
    this.#underWay ??= this.#copy();
    if (log < WAL_PAGES_MAX) return;
    await this.#underWay;
    // It may have begun before this commit. Whoever reads an old state keeps the rest from being copied: the next commit tries again.
    if (this.#size().uncopied > 0) await (this.#underWay ??= this.#copy());
  }

  /** Waits for the copy under way. */
  async close(): Promise<void> {
    const thread = this.#thread;
    if (thread === undefined) return;
    thread.ref();
    const isGone = new Promise((resolve) => thread.once('exit', resolve));
    ask(thread, 'close');
    await isGone;
  }

  #copy(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#done = () => {
      this.#underWay = undefined;
      resolve();
    };
    try {
      this.#thread ??= this.#start();
      ask(this.#thread, 'copy');
    } catch (error) {
      this.#lose(error);
    }
    return promise;
  }

  #start(): Worker {
    const url = threadFile('./copier', import.meta.url);
    const thread = new Worker(url, { workerData: this.#setup, name: 'copier' });
    thread.on('message', () => this.#done());
    thread.on('error', (error) => this.#lose(error));
    thread.unref();
    return thread;
  }

  /** A thread that cannot be started now is started by a later commit; any other error ends the process. */
  #lose(error: unknown): void {
    if (!isThreadUnavailable(error)) throw error;
    this.#thread = undefined;
    this.#done();
  }

  #size(): { readonly log: number; readonly uncopied: number } {
    const { log, checkpointed } = this.#pages.get() as { log: number; checkpointed: number };
    return { log, uncopied: log - checkpointed };
  }
}

function ask(thread: Worker, request: CopierRequest): void {
  thread.postMessage(request);
}
