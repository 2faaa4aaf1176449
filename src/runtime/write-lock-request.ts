/**
 * How a thread that writes to the store occasionally asks the processor, which writes continuously, to release the
 * write lock. SQLite has one writer and no queue: without this, an erase on a busy server would have to hit the few
 * milliseconds between two transactions by chance.
 *
 * A request is one number in shared memory, the time when it expires, and is renewed while the thread waits. So a
 * thread that dies leaves nothing behind, and any number of threads can share it.
 */

/** 250 ms: longer than a waiting thread may go without CPU time to renew its request. */
const VALID_NS = 250_000_000n;
const NONE = 0n;

export class WriteLockRequest {
  readonly #validUntil: BigInt64Array<SharedArrayBuffer>;

  constructor(buffer: SharedArrayBuffer) {
    this.#validUntil = new BigInt64Array(buffer);
  }

  static allocate(): SharedArrayBuffer {
    return new SharedArrayBuffer(BigInt64Array.BYTES_PER_ELEMENT);
  }

  renew(): void {
    Atomics.store(this.#validUntil, 0, now() + VALID_NS);
  }

  /** After writing, or giving up. Withdraws the requests of all threads: the others renew theirs in a moment. */
  withdraw(): void {
    Atomics.store(this.#validUntil, 0, NONE);
  }

  isPending(): boolean {
    return Atomics.load(this.#validUntil, 0) > now();
  }
}

/** The same in all threads of a process; it never goes back. */
function now(): bigint {
  return process.hrtime.bigint();
}
