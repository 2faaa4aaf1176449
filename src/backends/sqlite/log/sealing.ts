/**
 * The writer's side of sealing: keeps the connection of each finished segment open until the sealer thread
 * (`log/sealer.ts`) is done with it, because closing the last connection would copy the WAL here and now. A segment
 * that cannot be sealed yet is tried again for as long as the process lives, and then by the next start.
 */

import type { DatabaseSync } from 'node:sqlite';
import { Worker } from 'node:worker_threads';
import { threadFile } from '../../../threads.ts';
import type { SealReply, SealRequest } from './sealer.ts';

const RETRY_MS = 5_000;

export class Sealing {
  readonly #onFailed: (message: string) => void;
  /** By file; null for a segment that an earlier process left. */
  readonly #connections = new Map<string, DatabaseSync | null>();
  #thread: Worker | undefined;
  #isCopying = false;
  #stopped = false;

  constructor(onFailed: (message: string) => void) {
    this.#onFailed = onFailed;
  }

  seal(file: string, connection: DatabaseSync | null): void {
    if (this.#stopped) return;
    this.#connections.set(file, connection);
    this.#ask({ file, work: 'seal' });
  }

  /** Copies what is there of a segment that is still written. Does nothing while the last copy is under way. */
  copy(file: string): void {
    if (this.#stopped || this.#isCopying) return;
    this.#isCopying = true;
    this.#ask({ file, work: 'copy' });
  }

  /** Touches nothing any more: what a failed disk holds is left as it is. */
  abandon(): void {
    this.#stopped = true;
  }

  close(): void {
    this.#stopped = true;
    for (const connection of this.#connections.values()) connection?.close();
  }

  #ask(request: SealRequest): void {
    this.#thread ??= this.#startThread();
    this.#thread.postMessage(request);
  }

  #startThread(): Worker {
    const thread = new Worker(threadFile('./sealer', import.meta.url));
    thread.on('message', (reply: SealReply) => this.#hear(reply));
    // It could not be started (too many open files, say); what waits for it is asked for again.
    thread.on('error', () => {
      this.#thread = undefined;
      this.#isCopying = false;
      for (const [file, connection] of this.#connections) this.#sealLater(file, connection);
    });
    thread.unref();
    return thread;
  }

  #sealLater(file: string, connection: DatabaseSync | null): void {
    setTimeout(() => this.seal(file, connection), RETRY_MS).unref();
  }

  #hear({ file, work, outcome, message }: SealReply): void {
    if (work === 'copy') this.#isCopying = false;
    if (this.#stopped) return;
    if (outcome === 'failed') {
      this.#onFailed(`copying the write-ahead log of ${file}: ${message}`);
      return;
    }
    if (work === 'copy') return;
    const connection = this.#connections.get(file) ?? null;
    if (outcome === 'later') {
      // The connection stays: it keeps the index of the WAL, which readers could not make anew on a full disk.
      this.#sealLater(file, connection);
      return;
    }
    this.#connections.delete(file);
    connection?.close();
  }
}
