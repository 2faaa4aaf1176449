/**
 * The writer's side of sealing: keeps the connection of each finished segment open until the sealer thread
 * (`log-sealer.ts`) is done with it, because closing the last connection would copy the WAL here and now. A segment
 * that cannot be sealed yet is tried again for as long as the process lives, and then by the next start.
 */

import type { DatabaseSync } from 'node:sqlite';
import { Worker } from 'node:worker_threads';
import { threadFile } from '../../threads.ts';
import type { SealReply, SealRequest } from './log-sealer.ts';

const RETRY_MS = 5_000;

export class Sealing {
  readonly #onFailed: (message: string) => void;
  /** By file; null for a segment that an earlier process left. */
  readonly #connections = new Map<string, DatabaseSync | null>();
  #thread: Worker | undefined;
  #stopped = false;

  constructor(onFailed: (message: string) => void) {
    this.#onFailed = onFailed;
  }

  seal(file: string, connection: DatabaseSync | null): void {
    if (this.#stopped) return;
    this.#connections.set(file, connection);
    this.#thread ??= this.#startThread();
    const request: SealRequest = { file };
    this.#thread.postMessage(request);
  }

  /** Touches nothing any more: what a failed disk holds is left as it is. */
  abandon(): void {
    this.#stopped = true;
  }

  close(): void {
    this.#stopped = true;
    for (const connection of this.#connections.values()) connection?.close();
  }

  #startThread(): Worker {
    const thread = new Worker(threadFile('./log-sealer', import.meta.url));
    thread.on('message', (reply: SealReply) => this.#hear(reply));
    // It could not be started (too many open files, say); what waits for it is asked for again.
    thread.on('error', () => {
      this.#thread = undefined;
      for (const [file, connection] of this.#connections) this.#sealLater(file, connection);
    });
    thread.unref();
    return thread;
  }

  #sealLater(file: string, connection: DatabaseSync | null): void {
    setTimeout(() => this.seal(file, connection), RETRY_MS).unref();
  }

  #hear({ file, outcome, message }: SealReply): void {
    if (this.#stopped) return;
    const connection = this.#connections.get(file) ?? null;
    switch (outcome) {
      case 'sealed':
        this.#connections.delete(file);
        connection?.close();
        return;
      case 'later':
        // The connection stays: it keeps the index of the WAL, which readers could not make anew on a full disk.
        this.#sealLater(file, connection);
        return;
      case 'failed':
        this.#onFailed(`sealing ${file}: ${message}`);
        return;
    }
  }
}
