/**
 * How the processor waits for more without polling: the writer of the log counts its commits in memory that both
 * threads share, and wakes the processor up.
 */

/** After this the log is read anyway. */
const WAIT_MS_MAX = 500;

export class AppendSignal {
  readonly #commits: Int32Array<SharedArrayBuffer>;
  #seen = -1;

  constructor(buffer: SharedArrayBuffer) {
    this.#commits = new Int32Array(buffer);
  }

  static allocate(): SharedArrayBuffer {
    return new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
  }

  committed(): void {
    Atomics.add(this.#commits, 0, 1);
    Atomics.notify(this.#commits, 0);
  }

  /** Resolves when there was a commit since the last call, and after `WAIT_MS_MAX` at the latest. */
  async wait(): Promise<void> {
    await Atomics.waitAsync(this.#commits, 0, this.#seen, WAIT_MS_MAX).value;
    this.#seen = Atomics.load(this.#commits, 0);
  }
}
