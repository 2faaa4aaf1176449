/**
 * Checkpoints: copies write-ahead logs into their database files, one after the other. A server has one thread for it,
 * for the segments of the event log and for the store, so that no commit waits for a checkpoint; its clients reach it by
 * message ports.
 *
 * A file that cannot be checkpointed now (the disk is full, another connection blocks it) keeps its write-ahead log,
 * and the client asks again. After any other error nothing is checkpointed or closed any more, and the process has to
 * end: SQLite reuses a write-ahead log once it is copied and synced, so a failed sync must not be followed by one that
 * seems to work.
 */

import { existsSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { MessageChannel, type MessagePort } from 'node:worker_threads';
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
const RETRY_MS = 5_000;

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

/**
 * A writer's side: sends requests to the thread over a port. Without one, as in tests, its own thread checkpoints.
 *
 * A finished segment's connection is kept open until its write-ahead log is empty, because closing the last connection
 * would checkpoint at once. A failed checkpoint is retried for as long as the process lives, and then by the next
 * start.
 */
export class CheckpointClient {
  readonly #port: MessagePort;
  readonly #retryMs: number;
  /** Replies arrive in the order of requests. */
  readonly #waiting: ((isDone: boolean) => void)[] = [];
  #underWay: Promise<void> | undefined;
  /** By file; null for a segment that an earlier process left. */
  readonly #finished = new Map<string, DatabaseSync | null>();
  #isStopped = false;

  constructor(port: MessagePort = servedHere(), retryMs = RETRY_MS) {
    this.#port = port;
    this.#retryMs = retryMs;
    port.on('message', (isDone: boolean) => this.#waiting.shift()?.(isDone));
    port.unref();
  }

  /** Checkpoints a file that is still being written. If a checkpoint is running, waits for that one. */
  checkpoint(file: string): Promise<void> {
    if (this.#isStopped) return Promise.resolve();
    this.#underWay ??= this.#request({ file, mode: 'PASSIVE' }).then(() => {
      this.#underWay = undefined;
    });
    return this.#underWay;
  }

  /** Empties the write-ahead log of a file that is complete, however long that takes, then closes it. */
  async finish(file: string, connection: DatabaseSync | null): Promise<void> {
    this.#finished.set(file, connection);
    while (!this.#isStopped && !(await this.#request({ file, mode: 'TRUNCATE' }))) {
      // The connection stays open: it keeps the index of the WAL, which readers could not rebuild on a full disk.
      await sleep(this.#retryMs, undefined, { ref: false });
    }
    if (this.#isStopped) return;
    this.#finished.delete(file);
    connection?.close();
  }

  /** Stops all work: the files on a failed disk are left as they are. */
  abandon(): void {
    this.#isStopped = true;
  }

  /** Waits for running checkpoints. Call it before the writer closes its own connection, which must be the last one. */
  async close(): Promise<void> {
    this.#isStopped = true;
    await this.#request('close');
    for (const connection of this.#finished.values()) connection?.close();
    this.#port.close();
  }

  #request(request: CheckpointRequest | 'close'): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#waiting.push(resolve);
    this.#port.postMessage(request);
    return promise;
  }
}

function servedHere(): MessagePort {
  const { port1, port2 } = new MessageChannel();
  serveCheckpoints((message) => {
    throw new Error(message);
  })(port1);
  // As a port to another thread: it does not keep this one alive.
  port1.unref();
  return port2;
}
