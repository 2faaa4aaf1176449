/**
 * How a thread that writes to the store occasionally asks the processor, which writes continuously, for its turn.
 * SQLite has one writer and no queue: without this, an erase on a busy server would have to hit the few milliseconds
 * between two transactions by chance.
 *
 * A request is one number in shared memory, the time when it expires, and is renewed while the thread waits. So a
 * thread that dies leaves nothing behind, and any number of threads can share it.
 */

/** 250 ms: longer than a waiting thread may go without CPU time to renew its request. */
const HOLDS_NS = 250_000_000n;
const NONE = 0n;

export class WriteTurn {
  readonly #until: BigInt64Array<SharedArrayBuffer>;

  constructor(buffer: SharedArrayBuffer) {
    this.#until = new BigInt64Array(buffer);
  }

  static allocate(): SharedArrayBuffer {
    return new SharedArrayBuffer(BigInt64Array.BYTES_PER_ELEMENT);
  }

  request(): void {
    Atomics.store(this.#until, 0, now() + HOLDS_NS);
  }

  /** After the turn, or when it is not wanted any more. Withdraws the requests of all: others renew theirs in a moment. */
  withdraw(): void {
    Atomics.store(this.#until, 0, NONE);
  }

  isRequested(): boolean {
    return Atomics.load(this.#until, 0) > now();
  }
}

/** The same in all threads of a process; it never goes back. */
function now(): bigint {
  return process.hrtime.bigint();
}
