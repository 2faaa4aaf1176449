/**
 * The store for threads that must not block: forwards every call of `Store` to a thread of its own (`reader-thread.ts`),
 * which also adds what is still in the log (`views/reading.ts`).
 *
 * The first call starts the thread. When it dies, all waiting calls are rejected with `StoreUnavailableError` and the
 * next call restarts it. It keeps the process alive only while a call waits.
 */

import { Worker } from 'node:worker_threads';
import { BadCursorError, type Store } from '../../../store.ts';
import { StoreUnavailableError } from '../../../store-writer.ts';
import { HEAP_LIMITS, isThreadUnavailable, threadFile } from '../../../runtime/threads.ts';
import type { FailedCall, StoreCall, StoreMethod, StoreReply, StoreThreadSetup } from './reader-thread.ts';

export function openSqliteStoreClient(setup: StoreThreadSetup): Store {
  const calls = new StoreCalls(setup);
  return new Proxy({} as Store, {
    get: (_, name) => {
      if (name === 'close') return () => calls.close();
      // A promise that resolves with this object would call `then`.
      if (name === 'then' || typeof name === 'symbol') return undefined;
      return (...args: readonly unknown[]) => calls.call(name as StoreMethod, args);
    },
  });
}

class StoreCalls {
  readonly #setup: StoreThreadSetup;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  #thread: Worker | undefined;
  #nextId = 1;
  #isClosed = false;

  constructor(setup: StoreThreadSetup) {
    this.#setup = setup;
  }

  async call(method: StoreMethod, args: readonly unknown[]): Promise<unknown> {
    if (this.#isClosed) throw new StoreUnavailableError('the store is closed');
    const thread = this.#started();
    const waiting = Promise.withResolvers<unknown>();
    const call: StoreCall = { id: this.#nextId++, method, args };
    this.#waiting.set(call.id, waiting);
    thread.ref();
    thread.postMessage(call);
    return waiting.promise;
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
    thread.on('message', (reply: StoreReply) => this.#onReply(thread, reply));
    thread.on('error', (error: Error) => this.#onThreadEnd(thread, error.message));
    thread.on('exit', () => this.#onThreadEnd(thread, 'it ended'));
    return thread;
  }

  #onReply(thread: Worker, reply: StoreReply): void {
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    if (this.#waiting.size === 0) thread.unref();
    if ('error' in reply) waiting?.reject(errorOf(reply.error, reply.message));
    else waiting?.resolve(reply.value);
  }

  #onThreadEnd(thread: Worker, reason: string): void {
    if (this.#thread !== thread) return;
    this.#thread = undefined;
    const error = new StoreUnavailableError(`the thread that reads the store is gone: ${reason}`);
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}

function startThread(workerData: StoreThreadSetup): Worker {
  const options = { name: 'store reader', workerData, resourceLimits: HEAP_LIMITS.default };
  try {
    return new Worker(threadFile('./reader-thread', import.meta.url), options);
  } catch (error) {
    if (!isThreadUnavailable(error)) throw error;
    throw new StoreUnavailableError('the thread that reads the store cannot be started', { cause: error });
  }
}

function errorOf(kind: FailedCall['error'], message: string): Error {
  if (kind === 'bad_cursor') return new BadCursorError(message);
  if (kind === 'unavailable') return new StoreUnavailableError(message);
  return new Error(`a bug in the store: ${message}`);
}
