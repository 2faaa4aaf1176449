/**
 * The match keys of one user, as they are met on a walk over its record. Invariant: the same as `matchKeysOf`. A value
 * that is what it is gets one look at each of its characters and makes no text.
 */

import { isNoJunk, matchKeyOf, type MatchOptions } from '../identity/match-keys.ts';
import { IDENTIFIER_TYPES, type IdentifierType } from '../model.ts';
import { type Characters, NO_TEXT, type Packer } from './packer.ts';
import { packKey, setJunk } from './packing.ts';
import { type PlainWalk, QUOTE } from './plain-walk.ts';

const TYPES = IDENTIFIER_TYPES.length;
const EMAIL = IDENTIFIER_TYPES.indexOf('email');
const PHONE_NUMBER = IDENTIFIER_TYPES.indexOf('phone_number');

/** What a key stops being plain at: all but printable ASCII without white space, and its closing quote. */
const STOP = 1;
/** Of an email, which is matched in lower case. */
const CAPITAL = 2;
const KINDS = new Uint8Array(2 ** 16)
  .fill(STOP)
  .fill(0, 0x21, 0x7f)
  .fill(CAPITAL, 0x41, 0x5b)
  .fill(STOP, QUOTE, QUOTE + 1);

/** Where its closing quote is; negative if its value may have to be normalised. */
function plainEnd(characters: Characters, start: number, type: number): number {
  const stops = type === EMAIL ? STOP | CAPITAL : STOP;
  let at = start;
  while (((KINDS[characters[at] as number] as number) & stops) === 0) at++;
  const isPlain = characters[at] === QUOTE && at > start && type !== PHONE_NUMBER;
  return isPlain ? at : -1;
}

export class PlainKeys {
  readonly #packer: Packer;
  /** By type: where the value begins and ends, and what the client wrote if that is something else. */
  readonly #starts = new Int32Array(TYPES);
  readonly #ends = new Int32Array(TYPES);
  readonly #rawStarts = new Int32Array(TYPES);
  readonly #rawEnds = new Int32Array(TYPES);
  #count = 0;
  #junk = 0;

  constructor(packer: Packer) {
    this.#packer = packer;
  }

  clear(): void {
    this.#starts.fill(NO_TEXT);
    this.#count = 0;
    this.#junk = 0;
  }

  /** The string that comes next is the value of that type; `base` is what its places are told from. */
  take(walk: PlainWalk, base: number, type: number, options: MatchOptions): boolean {
    const { characters } = walk;
    const start = walk.at + 1;
    const end = plainEnd(characters, start, type);
    const first = characters[start] as number;
    if (end < 0 || !isNoJunk(first, characters[end - 1] as number, end - start, options)) {
      return walk.string() && this.#takeText(walk, base, type, options);
    }
    this.#add(type, base + start, base + end, NO_TEXT, NO_TEXT);
    return walk.goPast(end);
  }

  #takeText(walk: PlainWalk, base: number, type: number, options: MatchOptions): boolean {
    const key = matchKeyOf(IDENTIFIER_TYPES[type] as IdentifierType, walk.text(), options);
    const start = base + walk.textStart;
    const end = base + walk.textEnd;
    if (key === 'junk') {
      this.#junk |= 1 << type;
    } else if (key !== null) {
      const { value, raw } = key;
      const valueStart = value === raw ? start : this.#packer.other(value);
      const isSame = value === raw;
      this.#add(type, valueStart, valueStart + value.length, isSame ? NO_TEXT : start, isSame ? NO_TEXT : end);
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

  /** To be called when the events of the user are packed. */
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
