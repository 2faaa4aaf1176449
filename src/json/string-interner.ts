/**
 * Short strings that come again and again (names of properties, of events): a number for each, and the same string every
 * time. One that follows another usually did so the last time as well, and is then found by comparing it with that one
 * alone. Works on the bytes of strings as they are in a text, so of those that have no escape.
 *
 * Limits: when it is full it knows no more strings until it is cleared, which makes all numbers void.
 */

export const UNKNOWN = -1;
/** In bytes. */
const LENGTH_MAX = 128;
const USUAL_LENGTH = 32;
export const STRINGS_MAX = 2_048;
const SLOTS = 2 * STRINGS_MAX;
const BYTES_MAX = USUAL_LENGTH * STRINGS_MAX;
const HASH_FACTOR = 31;
const QUOTE = 0x22;

export class StringInterner {
  /** Those that are known from the start, and are numbered in their order. */
  readonly #first: readonly string[];
  readonly #isAllowed: (string: string) => boolean;
  /** All of them, each with the quote that ends it. */
  readonly #bytes = new Uint8Array(BYTES_MAX);
  #byteCount = 0;
  readonly #starts = new Int32Array(STRINGS_MAX + 1);
  /** One more than the number of a string; 0 where there is none. */
  readonly #slots = new Int16Array(SLOTS);
  /** Which came after it the last time. */
  readonly #followers = new Int16Array(STRINGS_MAX);
  #strings: string[] = [];

  /** A string that is not allowed stays unknown. */
  constructor(first: readonly string[], isAllowed: (string: string) => boolean = () => true) {
    this.#first = first;
    this.#isAllowed = isAllowed;
    this.clear();
  }

  /** How many more fit, if they are not unusually long. */
  get room(): number {
    return Math.min(STRINGS_MAX - this.#strings.length, (BYTES_MAX - this.#byteCount) / USUAL_LENGTH);
  }

  clear(): void {
    this.#byteCount = 0;
    this.#slots.fill(0);
    this.#followers.fill(0);
    this.#strings = [];
    for (const string of this.#first) {
      const bytes = Buffer.from(`${string}"`);
      this.#find(bytes, 0, bytes.length - 1);
    }
  }

  string(number: number): string {
    return this.#strings[number] as string;
  }

  /** The number of the string between two quotes, which came after `before`; `UNKNOWN` if there is no room for it. */
  find(bytes: Uint8Array, start: number, end: number, before: number): number {
    const likely = this.likelyAfter(before);
    if (this.#lengthOf(likely) === end - start && this.endIfAt(bytes, start, likely) === end) return likely;
    const found = this.#find(bytes, start, end);
    // One that is not ASCII takes fewer characters than bytes, which is for the caller to count.
    if (found !== UNKNOWN && this.string(found).length === end - start) this.#followers[before] = found;
    return found;
  }

  /** The one that came after it the last time, which is ASCII. */
  likelyAfter(before: number): number {
    return this.#followers[before] as number;
  }

  /** Where the string has its closing quote, if it is what begins there; else -1. */
  endIfAt(bytes: Uint8Array, start: number, number: number): number {
    const known = this.#bytes;
    const from = this.#starts[number] as number;
    const length = (this.#starts[number + 1] as number) - from;
    for (let at = 0; at < length; at++) if (bytes[start + at] !== known[from + at]) return -1;
    return start + length - 1;
  }

  #lengthOf(number: number): number {
    return (this.#starts[number + 1] as number) - (this.#starts[number] as number) - 1;
  }

  #find(bytes: Uint8Array, start: number, end: number): number {
    const length = end - start;
    if (length > LENGTH_MAX) return UNKNOWN;
    let hash = 0;
    for (let at = start; at < end; at++) hash = (Math.imul(hash, HASH_FACTOR) + (bytes[at] as number)) | 0;
    // The lowest bits of such a sum are those of the last bytes.
    let slot = (Math.imul(hash, 0x9e_37_79_b1) >>> 16) % SLOTS;
    for (; this.#slots[slot] !== 0; slot = (slot + 1) % SLOTS) {
      const number = (this.#slots[slot] as number) - 1;
      if (this.#lengthOf(number) === length && this.endIfAt(bytes, start, number) === end) return number;
    }
    const isFull = this.#strings.length === STRINGS_MAX || this.#byteCount + length >= BYTES_MAX;
    return isFull ? UNKNOWN : this.#add(bytes, start, end, slot);
  }

  #add(bytes: Uint8Array, start: number, end: number, slot: number): number {
    const number = this.#strings.length;
    const string = Buffer.from(bytes.buffer, bytes.byteOffset + start, end - start).toString('utf8');
    if (!this.#isAllowed(string)) return UNKNOWN;
    this.#strings.push(string);
    this.#bytes.set(bytes.subarray(start, end), this.#byteCount);
    this.#starts[number] = this.#byteCount;
    this.#byteCount += end - start;
    this.#bytes[this.#byteCount++] = QUOTE;
    this.#starts[number + 1] = this.#byteCount;
    this.#slots[slot] = number + 1;
    return number;
  }
}
