/**
 * The match keys of one user, as they are found in its record. Invariant: the same as `matchKeysOf`. A value that is
 * matched as it is written makes no string.
 */

import { cannotBeJunk, matchKeyOf, type MatchOptions } from '../identity/match-keys.ts';
import { IDENTIFIER_TYPES, type IdentifierType } from '../model.ts';
import { BACKSLASH, type JsonScanner, QUOTE } from '../json/scanner.ts';
import { NO_TEXT, type Packer } from './packer.ts';
import { packKey, setJunk } from './packing.ts';

const TYPES = IDENTIFIER_TYPES.length;
const EMAIL = IDENTIFIER_TYPES.indexOf('email');
const PHONE_NUMBER = IDENTIFIER_TYPES.indexOf('phone_number');

/** What a key stops being plain at: all but printable ASCII without white space, and its closing quote. */
const STOP = 1;
/** Of an email, which is matched in lower case. */
const CAPITAL = 2;
const KINDS = new Uint8Array(256).fill(STOP).fill(0, 0x21, 0x7f).fill(CAPITAL, 0x41, 0x5b);
KINDS[QUOTE] = STOP;
KINDS[BACKSLASH] = STOP;

/** Where the closing quote is of a value that need not be normalised; -1 for any other. */
function plainEnd(bytes: Uint8Array, start: number, type: number): number {
  const stops = type === EMAIL ? STOP | CAPITAL : STOP;
  let at = start;
  while (at < bytes.length && ((KINDS[bytes[at] as number] as number) & stops) === 0) at++;
  const isPlain = bytes[at] === QUOTE && at > start && type !== PHONE_NUMBER;
  return isPlain ? at : -1;
}

export class PlainKeys {
  readonly #packer: Packer;
  readonly #options: MatchOptions;
  /** By type: where the value begins and ends, and what the client wrote if that is something else. */
  readonly #starts = new Int32Array(TYPES);
  readonly #ends = new Int32Array(TYPES);
  readonly #rawStarts = new Int32Array(TYPES);
  readonly #rawEnds = new Int32Array(TYPES);
  #count = 0;
  #junk = 0;

  constructor(packer: Packer, options: MatchOptions) {
    this.#packer = packer;
    this.#options = options;
  }

  clear(): void {
    this.#starts.fill(NO_TEXT);
    this.#count = 0;
    this.#junk = 0;
  }

  /** The next string is the value of that type; `base` is what the first unit of the body is packed as. */
  take(scanner: JsonScanner, base: number, type: number): boolean {
    if (scanner.peek() !== QUOTE) return false;
    const { bytes } = scanner;
    const start = scanner.at + 1;
    const end = plainEnd(bytes, start, type);
    if (end >= 0 && cannotBeJunk(bytes[start] as number, bytes[end - 1] as number, end - start, this.#options)) {
      scanner.plainString(end);
      this.#add(type, base + scanner.stringStartOffset, base + scanner.stringEndOffset, NO_TEXT, NO_TEXT);
      return true;
    }
    return scanner.string() && this.#takeText(scanner, base, type);
  }

  #takeText(scanner: JsonScanner, base: number, type: number): boolean {
    const spanStart = base + scanner.stringStartOffset;
    const spanEnd = base + scanner.stringEndOffset;
    const key = matchKeyOf(IDENTIFIER_TYPES[type] as IdentifierType, scanner.stringText(), this.#options);
    if (key === 'junk') {
      this.#junk |= 1 << type;
    } else if (key !== null) {
      const { value, raw } = key;
      if (value === raw) {
        this.#add(type, spanStart, spanEnd, NO_TEXT, NO_TEXT);
      } else {
        const valueStart = this.#packer.other(value);
        this.#add(type, valueStart, valueStart + value.length, spanStart, spanEnd);
      }
    }
    return true;
  }

  #add(type: number, start: number, end: number, rawStart: number, rawEnd: number): void {
    this.#starts[type] = start;
    this.#ends[type] = end;
    this.#rawStarts[type] = rawStart;
    this.#rawEnds[type] = rawEnd;
    this.#count++;
  }

  /** Call it once the events of the user are packed. */
  pack(user: number): void {
    const packer = this.#packer;
    setJunk(packer, user, this.#junk);
    packer.number(this.#count);
    for (let type = 0; type < TYPES; type++) {
      const start = this.#starts[type] as number;
      if (start === NO_TEXT) continue;
      const end = this.#ends[type] as number;
      packKey(packer, type, start, end, this.#rawStarts[type] as number, this.#rawEnds[type] as number);
    }
  }
}
