/**
 * A writer's side of checkpoints, for the event log and the store: sends requests to the checkpointer's thread over a
 * port (`checkpointer.ts`). Without one, as in tests, it checkpoints itself, within the call.
 *
 * A finished segment's connection is kept open until its write-ahead log is empty, because closing the last connection
 * would checkpoint at once. A failed checkpoint is retried for as long as the process lives, and then by the next
 * start.
 */

import type { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import type { MessagePort } from 'node:worker_threads';
import { Checkpointer, type CheckpointRequest } from './checkpointer.ts';

const RETRY_MS = 5_000;

export class CheckpointClient {
  readonly #target: MessagePort | Checkpointer;
  readonly #retryMs: number;
  /** Replies arrive in the order of requests. */
  readonly #waiting: ((isDone: boolean) => void)[] = [];
  #underWay: Promise<void> | undefined;
  /** By file; null for a segment that an earlier process left. */
  readonly #finished = new Map<string, DatabaseSync | null>();
  #isStopped = false;

  constructor(port: MessagePort | undefined, retryMs = RETRY_MS) {
    this.#target = port ?? new Checkpointer();
    this.#retryMs = retryMs;
    port?.on('message', (isDone: boolean) => this.#waiting.shift()?.(isDone));
    port?.unref();
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
    if (!(this.#target instanceof Checkpointer)) this.#target.close();
  }

  async #request(request: CheckpointRequest | 'close'): Promise<boolean> {
    if (this.#target instanceof Checkpointer) {
      if (request !== 'close') return this.#target.checkpoint(request);
      this.#target.close();
      return true;
    }
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#waiting.push(resolve);
    this.#target.postMessage(request);
    return promise;
  }
}
