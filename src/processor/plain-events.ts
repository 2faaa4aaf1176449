/**
 * The events of one user, packed as they are met on a walk over its record. Part of `prepare-plain.ts`.
 */

import { parseIso8601, parseUsualTime, USUAL_TIME_LENGTH } from '../validation/iso8601.ts';
import { KnownTexts, TEXTS_MAX, UNKNOWN } from './known-texts.ts';
import { NumberedWords } from './numbered-words.ts';
import { currencyOf, NO_CURRENCY, OTHER_CURRENCY } from '../stored/currency.ts';
import { type Characters, EMPTY_OBJECT, NO_TEXT, type Packer, textOf } from './packer.ts';
import { packEvent } from './packing.ts';
import { BEGINNING, NAME } from './plain-names.ts';
import {
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COMMA,
  LOWER_N,
  OPEN_BRACE,
  OPEN_BRACKET,
  type PlainWalk,
  QUOTE,
} from './plain-walk.ts';

/** Of a currency. */
const CODE_LENGTH = 3;
const LETTERS = 26;
const UPPER_A = 0x41;
const LOWER_A = 0x61;
/** The bit that a small letter has and a capital has not. */
const TO_LOWER = 0x20;

export class PlainEvents {
  readonly #packer: Packer;
  readonly #walk: PlainWalk;
  readonly #eventNames = new KnownTexts(['']);
  readonly #eventWords: NumberedWords;
  /** Codes of currencies that were met, by number. */
  readonly #codes: string[] = [];
  readonly #codeWords: NumberedWords;
  #lastEventName = 0;
  #base = 0;

  constructor(packer: Packer, walk: PlainWalk) {
    this.#packer = packer;
    this.#walk = walk;
    this.#eventWords = new NumberedWords(packer, TEXTS_MAX);
    this.#codeWords = new NumberedWords(packer, LETTERS ** CODE_LENGTH);
  }

  /** For another name. */
  makeRoom(): void {
    if (this.#eventNames.room >= 1) return;
    this.#eventNames.clear();
    this.#eventWords.clear();
    this.#lastEventName = 0;
  }

  /** Packs the list of events that comes next, and returns how many there are; 0 if they are not all ordinary. */
  pack(base: number, receivedAt: number): number {
    const walk = this.#walk;
    let events = 0;
    this.#base = base;
    if (!walk.takes(OPEN_BRACKET)) return 0;
    do {
      if (!this.#event(receivedAt)) return 0;
      events++;
    } while (walk.takes(COMMA));
    return walk.takes(CLOSE_BRACKET) ? events : 0;
  }

  #event(receivedAt: number): boolean {
    const walk = this.#walk;
    let eventName = NO_TEXT;
    let timestamp = receivedAt;
    let revenue = Number.NaN;
    let value = Number.NaN;
    let idStart = NO_TEXT;
    let idEnd = NO_TEXT;
    let currencyStart = NO_TEXT;
    let currencyEnd = NO_TEXT;
    if (!walk.takes(OPEN_BRACE)) return false;
    walk.enter();
    let name: number = BEGINNING.event;
    do {
      const from = walk.at;
      name = walk.name(name);
      switch (name) {
        case UNKNOWN:
          return false;
        case NAME.event_name:
          eventName = this.#eventName();
          if (eventName === NO_TEXT) return false;
          break;
        case NAME.timestamp:
          if (walk.code === LOWER_N) {
            if (!walk.null()) return false;
          } else {
            timestamp = this.#timestamp();
            if (Number.isNaN(timestamp)) return false;
          }
          break;
        case NAME.revenue:
          if (!walk.amount()) return false;
          revenue = walk.number;
          break;
        case NAME.event_value:
          if (!walk.amount()) return false;
          value = walk.number;
          break;
        case NAME.$event_id:
          if (walk.code === QUOTE) {
            if (!walk.string()) return false;
            idStart = this.#base + walk.textStart;
            idEnd = this.#base + walk.textEnd;
          } else if (!walk.value(1)) {
            return false;
          }
          walk.keep(from);
          break;
        case NAME.currency:
          currencyStart = walk.at;
          if (!walk.value(1)) return false;
          currencyEnd = walk.at;
          walk.keep(from);
          break;
        default:
          if (!walk.value(1)) return false;
          walk.keep(from);
      }
    } while (walk.takes(COMMA));
    if (!walk.takes(CLOSE_BRACE) || eventName === NO_TEXT) return false;
    const currency = Number.isNaN(revenue) ? NO_TEXT : this.#currency(currencyStart, currencyEnd);
    const isKept = walk.takeKept();
    const start = isKept ? this.#base + walk.textStart : EMPTY_OBJECT;
    const end = isKept ? this.#base + walk.textEnd : NO_TEXT;
    const packer = this.#packer;
    packEvent(packer, eventName, start, end, idStart, idEnd, timestamp, amountOf(revenue), amountOf(value), currency);
    return true;
  }

  /** The word for it. */
  #eventName(): number {
    const walk = this.#walk;
    if (walk.code !== QUOTE) return NO_TEXT;
    const start = walk.at + 1;
    const known = this.#eventNames.find(walk.characters, start, this.#lastEventName);
    if (known === UNKNOWN) return walk.string() ? this.#packer.word(walk.text()) : NO_TEXT;
    this.#lastEventName = known;
    if (!walk.goPast(start + this.#eventNames.length(known))) return NO_TEXT;
    return this.#eventWords.word(known, this.#eventNames.text(known));
  }

  /** The word for the currency in the value from there to there. */
  #currency(start: number, end: number): number {
    if (start === NO_TEXT) return this.#packer.word(NO_CURRENCY);
    const { characters } = this.#walk;
    if (characters[start] === LOWER_N) return this.#packer.word(NO_CURRENCY);
    if (characters[start] !== QUOTE) return this.#packer.word(OTHER_CURRENCY);
    if (end - start === CODE_LENGTH + 2) {
      const a = letterAt(characters, start + 1);
      const b = letterAt(characters, start + 2);
      const c = letterAt(characters, start + 3);
      if (a >= 0 && b >= 0 && c >= 0) return this.#code(a, b, c);
    }
    return this.#packer.word(currencyOf(textOf(characters, start + 1, end - 1)));
  }

  /** The word for a code, by the places of its letters. */
  #code(a: number, b: number, c: number): number {
    const number = (a * LETTERS + b) * LETTERS + c;
    const text = (this.#codes[number] ??= String.fromCharCode(UPPER_A + a, UPPER_A + b, UPPER_A + c));
    return this.#codeWords.word(number, text);
  }

  #timestamp(): number {
    const walk = this.#walk;
    const start = walk.at + 1;
    const end = start + USUAL_TIME_LENGTH;
    if (walk.code === QUOTE && walk.characters[end] === QUOTE) {
      const usual = parseUsualTime(walk.characters, start);
      if (!Number.isNaN(usual)) return walk.goPast(end) ? usual : Number.NaN;
    }
    return walk.string() ? (parseIso8601(walk.text()) ?? Number.NaN) : Number.NaN;
  }
}

/** Which letter it is, in capitals or not; -1 for none. */
function letterAt(characters: Characters, at: number): number {
  const letter = ((characters[at] as number) | TO_LOWER) - LOWER_A;
  return letter >= 0 && letter < LETTERS ? letter : -1;
}

function amountOf(amount: number): number | null {
  return Number.isNaN(amount) ? null : amount;
}
