/**
 * The members of a JSON object that are kept, as text, without serialising them again: adjacent members stay where they
 * are in the body, with a brace written over the comma or brace on either side; where others are left out between them,
 * they are concatenated after the body. Writes only into the packer's copy, never into the body that is being scanned.
 *
 * All offsets exist twice, in bytes and in UTF-16 units: bytes are written, units are packed.
 */

import { CLOSE_BRACE, COMMA, type JsonScanner, OPEN_BRACE } from '../json/scanner.ts';
import type { Taken } from './packer.ts';

const NOWHERE = -1;

export class KeptMembers {
  #memory = new Uint8Array(0);
  /** Where the body begins in it, and what its first unit is packed as. */
  #origin = 0;
  #base = 0;
  /** Members that follow each other: from their first byte to behind their last. */
  #runStart = NOWHERE;
  #runEnd = 0;
  #runStartUnit = 0;
  #runEndUnit = 0;
  /** The unit where those before them begin, put together; `NOWHERE` if there are none. */
  #copyStartUnit = NOWHERE;
  /** Where there is room behind the body, counted from its beginning. */
  #free = 0;
  #freeUnit = 0;
  /** Of what was kept, as it is packed. */
  start = 0;
  end = 0;

  /** For a body of so many bytes and units. */
  begin({ memory, start, base }: Taken, bytes: number, units: number): void {
    this.#memory = memory;
    this.#origin = start;
    this.#base = base;
    this.#free = bytes;
    this.#freeUnit = units;
    this.clear();
  }

  /** Bytes and units of the body and of what is behind it. */
  get bytes(): number {
    return this.#free;
  }

  get units(): number {
    return this.#freeUnit;
  }

  /** For another object. */
  clear(): void {
    this.#runStart = NOWHERE;
    this.#copyStartUnit = NOWHERE;
  }

  /** The member from there to where the scanner is. */
  keep(from: number, fromUnit: number, scanner: JsonScanner): void {
    if (this.#runStart === NOWHERE || from !== this.#runEnd + 1) {
      if (this.#runStart !== NOWHERE) this.#copyRun();
      this.#runStart = from;
      this.#runStartUnit = fromUnit;
    }
    this.#runEnd = scanner.at;
    this.#runEndUnit = scanner.offset;
  }

  /** Whether there is anything; then `start` and `end` say where. To be called when the scanner has left the object. */
  finish(): boolean {
    if (this.#runStart === NOWHERE) return false;
    const memory = this.#memory;
    const base = this.#base;
    if (this.#copyStartUnit === NOWHERE) {
      memory[this.#origin + this.#runStart - 1] = OPEN_BRACE;
      memory[this.#origin + this.#runEnd] = CLOSE_BRACE;
      this.start = base + this.#runStartUnit - 1;
      this.end = base + this.#runEndUnit + 1;
    } else {
      this.#copyRun();
      memory[this.#origin + this.#free++] = CLOSE_BRACE;
      this.start = base + this.#copyStartUnit;
      this.end = base + ++this.#freeUnit;
    }
    return true;
  }

  #copyRun(): void {
    const memory = this.#memory;
    const origin = this.#origin;
    const isFirst = this.#copyStartUnit === NOWHERE;
    if (isFirst) this.#copyStartUnit = this.#freeUnit;
    memory[origin + this.#free++] = isFirst ? OPEN_BRACE : COMMA;
    memory.copyWithin(origin + this.#free, origin + this.#runStart, origin + this.#runEnd);
    this.#free += this.#runEnd - this.#runStart;
    this.#freeUnit += 1 + this.#runEndUnit - this.#runStartUnit;
  }
}
