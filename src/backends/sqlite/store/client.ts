/**
 * The store for threads that must not block: forwards every call of `Store` to a thread of its own, which also adds
 * what is still in the log (`views/reading.ts`).
 *
 * The first call starts the thread. When it dies, all waiting calls are rejected with `StoreUnavailableError` and the
 * next call restarts it. It keeps the process alive only while a call waits.
 */

import { Worker } from 'node:worker_threads';
import { DEFAULT_MATCH_OPTIONS, type MatchOptions } from '../../../identity/match-keys.ts';
import { BadCursorError, type Store } from '../../../store.ts';
import { StoreUnavailableError } from '../../../store-writer.ts';
import { isThreadUnavailable, threadFile } from '../../../runtime/threads.ts';
import type { StoreCall, StoreMethod, StoreReply, StoreThreadSetup } from './reader-thread.ts';

export interface StoreClientSetup {
  readonly storeFile: string;
  readonly logFolder: string;
  readonly matchOptions?: MatchOptions;
  /** Memory of the `WriteTurn`; without it, erases and unmerges wait for a pause of the processor. */
  readonly writeTurn?: SharedArrayBuffer | undefined;
}

const HEAP_MB_MAX = 1_024;
/** V8's default young generation would grow to 96 MB for a few long lists, and stay there. */
const YOUNG_MB_MAX = 24;

export function openSqliteStoreClient({
  storeFile,
  logFolder,
  matchOptions = DEFAULT_MATCH_OPTIONS,
  writeTurn,
}: StoreClientSetup): Store {
  const calls = new StoreCalls({ storeFile, logFolder, matchOptions, writeTurn });
  return new Proxy({} as Store, {
    get: (_, name) => {
      if (name === 'close') return () => calls.close();
      // A promise that resolves with this object would call `then`.
      if (name === 'then' || typeof name === 'symbol') return undefined;
      return (...args: readonly unknown[]) => calls.call(name as StoreMethod, args);
    },
  });
}

interface Waiting {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

class StoreCalls {
  readonly #setup: StoreThreadSetup;
  readonly #waiting = new Map<number, Waiting>();
  #thread: Worker | undefined;
  #nextId = 1;
  #isClosed = false;

  constructor(setup: StoreThreadSetup) {
    this.#setup = setup;
  }

  async call(method: StoreMethod, args: readonly unknown[]): Promise<unknown> {
    if (this.#isClosed) throw new StoreUnavailableError('the store is closed');
    const thread = this.#started();
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const call: StoreCall = { id: this.#nextId++, method, args };
    this.#waiting.set(call.id, { resolve, reject });
    thread.ref();
    thread.postMessage(call);
    return promise;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const thread = this.#thread;
    if (thread === undefined) return;
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    thread.once('exit', () => resolve());
    thread.ref();
    thread.postMessage('close');
    await ended;
  }

  #started(): Worker {
    if (this.#thread !== undefined) return this.#thread;
    const thread = startThread(this.#setup);
    this.#thread = thread;
    thread.on('message', (reply: StoreReply) => this.#hear(thread, reply));
    thread.on('error', (error: Error) => this.#lose(thread, error.message));
    thread.on('exit', () => this.#lose(thread, 'it ended'));
    return thread;
  }

  #hear(thread: Worker, reply: StoreReply): void {
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    if (this.#waiting.size === 0) thread.unref();
    if ('error' in reply) waiting?.reject(errorOf(reply.error, reply.message));
    else waiting?.resolve(reply.value);
  }

  #lose(thread: Worker, reason: string): void {
    if (this.#thread !== thread) return;
    this.#thread = undefined;
    const error = new StoreUnavailableError(`the thread that reads the store is gone: ${reason}`);
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}

function startThread(workerData: StoreThreadSetup): Worker {
  // A read that needs more than this ends its thread, not the process.
  const resourceLimits = { maxOldGenerationSizeMb: HEAP_MB_MAX, maxYoungGenerationSizeMb: YOUNG_MB_MAX };
  try {
    return new Worker(threadFile('./reader-thread', import.meta.url), {
      name: 'store reader',
      workerData,
      resourceLimits,
    });
  } catch (error) {
    if (!isThreadUnavailable(error)) throw error;
    throw new StoreUnavailableError('the thread that reads the store cannot be started', { cause: error });
  }
}

function errorOf(kind: 'bad_cursor' | 'unavailable' | 'bug', message: string): Error {
  if (kind === 'bad_cursor') return new BadCursorError(message);
  if (kind === 'unavailable') return new StoreUnavailableError(message);
  return new Error(`a bug in the store: ${message}`);
}
