/**
 * Numbers as bytes, small ones as few: seven bits a byte, lowest first, the eighth says that there is more. For safe
 * integers that are not negative; `putSigned` takes either sign, up to half of that. A writer is used again and again.
 */

const FIRST_CAPACITY = 4_096;
/** Of the longest number: eight times seven bits. */
const NUMBER_BYTES_MAX = 8;
const SMALL_MAX = 0x7fffffff;

export class VarintWriter {
  #bytes = new Uint8Array(FIRST_CAPACITY);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;

  put(value: number): void {
    if (this.#length + NUMBER_BYTES_MAX > this.#bytes.length) this.#grow();
    const bytes = this.#bytes;
    let at = this.#length;
    let rest = value;
    while (rest > SMALL_MAX) {
      bytes[at++] = (rest % 128) + 128;
      rest = Math.floor(rest / 128);
    }
    let small = rest | 0;
    while (small > 127) {
      bytes[at++] = (small & 127) | 128;
      small >>>= 7;
    }
    bytes[at++] = small;
    this.#length = at;
  }

  /** Small amounts of either sign are small. */
  putSigned(value: number): void {
    this.put(value < 0 ? -2 * value - 1 : 2 * value);
  }

  /** All eight bytes of it. */
  putDouble(value: number): void {
    if (this.#length + NUMBER_BYTES_MAX > this.#bytes.length) this.#grow();
    this.#view.setFloat64(this.#length, value);
    this.#length += NUMBER_BYTES_MAX;
  }

  /** What was put since the last time; overwritten by what is put next. */
  take(): Uint8Array {
    const taken = this.#bytes.subarray(0, this.#length);
    this.#length = 0;
    return taken;
  }

  #grow(): void {
    const larger = new Uint8Array(this.#bytes.length * 2);
    larger.set(this.#bytes);
    this.#bytes = larger;
    this.#view = new DataView(larger.buffer);
  }
}

export class VarintReader {
  readonly #bytes: Uint8Array;
  #view: DataView | undefined;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#bytes.length;
  }

  get(): number {
    let byte = this.#bytes[this.#at++] as number;
    let value = byte & 127;
    for (let factor = 128; byte > 127; factor *= 128) {
      byte = this.#bytes[this.#at++] as number;
      value += (byte & 127) * factor;
    }
    return value;
  }

  /** Past so many numbers. */
  skip(numbers: number): void {
    let at = this.#at;
    for (let left = numbers; left > 0; left--) while ((this.#bytes[at++] as number) > 127);
    this.#at = at;
  }

  getSigned(): number {
    const value = this.get();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  getDouble(): number {
    const { buffer, byteOffset, byteLength } = this.#bytes;
    this.#view ??= new DataView(buffer, byteOffset, byteLength);
    const value = this.#view.getFloat64(this.#at);
    this.#at += NUMBER_BYTES_MAX;
    return value;
  }
}
