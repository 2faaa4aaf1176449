/**
 * A writer's side of checkpoints, for the event log and the store: asks the checkpointer's thread over a port
 * (`checkpointer.ts`). Without one, as in tests, it makes them itself, within the call.
 *
 * A finished segment's connection is kept open until its write-ahead log is empty, because closing the last connection
 * would make the checkpoint here and now. What cannot be checkpointed yet is tried again for as long as the process
 * lives, and then by the next start.
 */

import type { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import type { MessagePort } from 'node:worker_threads';
import { Checkpointer, type CheckpointRequest } from './checkpointer.ts';

const RETRY_MS = 5_000;

export class Checkpointing {
  readonly #target: MessagePort | Checkpointer;
  readonly #retryMs: number;
  /** Who waits for a reply; replies come in the order of requests. */
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

  /** Checkpoints what there is of a file that is still written to. While one is under way, waits for that one. */
  checkpoint(file: string): Promise<void> {
    if (this.#isStopped) return Promise.resolve();
    this.#underWay ??= this.#request({ file, mode: 'PASSIVE' }).then(() => {
      this.#underWay = undefined;
    });
    return this.#underWay;
  }

  /** Empties the write-ahead log of a file that is not written to any more, however long that takes, then closes it. */
  async finish(file: string, connection: DatabaseSync | null): Promise<void> {
    this.#finished.set(file, connection);
    while (!this.#isStopped && !(await this.#request({ file, mode: 'TRUNCATE' }))) {
      // The connection stays: it keeps the index of the WAL, which readers could not make anew on a full disk.
      await sleep(this.#retryMs, undefined, { ref: false });
    }
    if (this.#isStopped) return;
    this.#finished.delete(file);
    connection?.close();
  }

  /** Touches nothing any more: what a failed disk holds is left as it is. */
  abandon(): void {
    this.#isStopped = true;
  }

  /** Waits for what is under way. To be called before the writer closes its own connection, so that that is the last. */
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
