/**
 * How long it takes to read a number from memory that is in no cache of the core. All cores may be there, at full
 * clock speed, and still do less: on a shared host, neighbours fill the cache that the cores share and use up the
 * bandwidth of the memory, so the same work takes more CPU time. No counter inside a virtual machine says so.
 *
 * Reads follow one random cycle through 16 MB, several times a core's own cache: the address of each depends on the
 * read before it.
 */

const NUMBERS = 2 ** 22;
const READS = 20_000;
/** The quickest counts: the others were interrupted. */
const TRIES = 5;

export class MemoryLatency {
  private readonly next = randomCycle(NUMBERS);
  private at = 0;

  /** In nanoseconds. Takes about ten milliseconds. */
  now(): number {
    let quickest = Number.POSITIVE_INFINITY;
    for (let n = 0; n < TRIES; n += 1) quickest = Math.min(quickest, this.read());
    return quickest;
  }

  private read(): number {
    let { at } = this;
    const from = performance.now();
    for (let n = 0; n < READS; n += 1) at = this.next[at] as number;
    const nanoseconds = ((performance.now() - from) * 1e6) / READS;
    this.at = at;
    return nanoseconds;
  }
}

/** Sattolo's shuffle: a permutation that is a single cycle. */
function randomCycle(length: number): Int32Array {
  const numbers = Int32Array.from({ length }, (_, index) => index);
  for (let last = length - 1; last > 0; last -= 1) {
    const other = Math.floor(Math.random() * last);
    const number = numbers[last] as number;
    numbers[last] = numbers[other] as number;
    numbers[other] = number;
  }
  return numbers;
}
