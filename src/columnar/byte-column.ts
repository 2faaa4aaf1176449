/**
 * The bytes of rows, concatenated in one piece of memory: as an array of arrays they would be an object for each of
 * hundreds of thousands of rows. Replaced bytes stay in memory until all are cleared. The result of `get` points into
 * that memory, and is valid until then.
 */

const FIRST_ROWS = 64;
const FIRST_BYTES = 4_096;
/** Larger memory is released. */
const KEPT_BYTES_MAX = 64 * 1024 * 1024;
const UTF8_BYTES_PER_CHARACTER_MAX = 3;

export class ByteColumn {
  #memory = Buffer.allocUnsafeSlow(FIRST_BYTES);
  #used = 0;
  #starts = new Float64Array(FIRST_ROWS);
  #ends = new Float64Array(FIRST_ROWS);
  #count = 0;

  /** Bytes of all rows, including what was replaced. */
  get bytesUsed(): number {
    return this.#used;
  }

  length(row: number): number {
    return (this.#ends[row] as number) - (this.#starts[row] as number);
  }

  get(row: number): Uint8Array {
    return this.#memory.subarray(this.#starts[row], this.#ends[row]);
  }

  push(bytes: Uint8Array | string): void {
    if (typeof bytes === 'string') this.#pushText(bytes);
    else this.set(this.#next(), bytes);
  }

  set(row: number, bytes: Uint8Array): void {
    const start = this.#room(bytes.length);
    this.#memory.set(bytes, start);
    this.#end(row, start, bytes.length);
  }

  replace(row: number, by: number): void {
    this.#starts[row] = this.#starts[by] as number;
    this.#ends[row] = this.#ends[by] as number;
  }

  removeLast(): void {
    this.#count--;
  }

  #pushText(text: string): void {
    const start = this.#room(text.length * UTF8_BYTES_PER_CHARACTER_MAX);
    this.#end(this.#next(), start, this.#memory.write(text, start));
  }

  clear(): void {
    this.#count = 0;
    this.#used = 0;
    if (this.#memory.length > KEPT_BYTES_MAX) this.#memory = Buffer.allocUnsafeSlow(FIRST_BYTES);
  }

  #next(): number {
    if (this.#count === this.#starts.length) {
      this.#starts = doubled(this.#starts);
      this.#ends = doubled(this.#ends);
    }
    return this.#count++;
  }

  #room(bytes: number): number {
    const start = this.#used;
    if (start + bytes > this.#memory.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(2 * this.#memory.length, start + bytes));
      this.#memory.copy(larger, 0, 0, start);
      this.#memory = larger;
    }
    return start;
  }

  #end(row: number, start: number, length: number): void {
    this.#starts[row] = start;
    this.#used = this.#ends[row] = start + length;
  }
}

export function doubled(column: Float64Array): Float64Array<ArrayBuffer> {
  const larger = new Float64Array(Math.max(1, 2 * column.length));
  larger.set(column);
  return larger;
}
