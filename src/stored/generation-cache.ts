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

  clear(): void {
    this.#young = new Map();
    this.#old = new Map();
  }
}

/** The same with a number before the key, such as that of a tenant; the bound is for all of them together. */
export class GroupedGenerationCache<Key, Value> {
  readonly #entriesMax: number;
  #young = new Map<number, Map<Key, Value>>();
  #old = new Map<number, Map<Key, Value>>();
  #entries = 0;

  constructor(entriesMax: number) {
    this.#entriesMax = entriesMax;
  }

  get(group: number, key: Key): Value | undefined {
    const young = this.#young.get(group)?.get(key);
    if (young !== undefined) return young;
    const old = this.#old.get(group)?.get(key);
    if (old !== undefined) this.set(group, key, old);
    return old;
  }

  set(group: number, key: Key, value: Value): void {
    const values = this.#young.get(group) ?? new Map<Key, Value>();
    this.#young.set(group, values.set(key, value));
    // Setting a key again counts once more: that only makes it turn over a little earlier.
    this.#entries += 1;
    if (this.#entries < this.#entriesMax) return;
    this.#old = this.#young;
    this.#young = new Map();
    this.#entries = 0;
  }

  clear(): void {
    this.#young = new Map();
    this.#old = new Map();
    this.#entries = 0;
  }
}

/** A text may be a slice of a whole batch (processor/packing.ts), which would stay in memory as long as it is cached. */
export function ownCopy(text: string): string {
  return ` ${text}`.slice(1);
}
