/**
 * A bounded cache without bookkeeping on each hit: two maps, the young one takes what is new or used again, and becomes
 * the old one when it is full; what was in the old one until then and was not used is gone. Holds at most twice
 * `entriesMax`, forgets nothing that was among the last `entriesMax` used.
 */
export class GenerationCache<Key, Value> {
  readonly #entriesMax: number;
  #young = new Map<Key, Value>();
  #old = new Map<Key, Value>();

  constructor(entriesMax: number) {
    this.#entriesMax = entriesMax;
  }

  get(key: Key): Value | undefined {
    const young = this.#young.get(key);
    if (young !== undefined) return young;
    const old = this.#old.get(key);
    if (old !== undefined) this.set(key, old);
    return old;
  }

  set(key: Key, value: Value): void {
    this.#young.set(key, value);
    if (this.#young.size < this.#entriesMax) return;
    this.#old = this.#young;
    this.#young = new Map();
  }

  delete(key: Key): void {
    this.#young.delete(key);
    this.#old.delete(key);
  }

  clear(): void {
    this.#young = new Map();
    this.#old = new Map();
  }
}

/** A text may be a slice of a whole batch (processor/packing.ts), which would stay in memory as long as it is cached. */
export function ownCopy(text: string): string {
  return ` ${text}`.slice(1);
}
