/**
 * The events of one user, packed as they are met on a walk over its record. Part of `prepare-plain.ts`.
 */

import { parseIso8601, parseUsualTime, USUAL_TIME_LENGTH } from '../validation/iso8601.ts';
import { KnownTexts, TEXTS_MAX, UNKNOWN } from './known-texts.ts';
import { NumberedWords } from './numbered-words.ts';
import { EMPTY_OBJECT, NO_TEXT, type Packer } from './packer.ts';
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

export class PlainEvents {
  readonly #packer: Packer;
  readonly #walk: PlainWalk;
  readonly #eventNames = new KnownTexts(['']);
  readonly #eventWords: NumberedWords;
  #lastEventName = 0;
  #base = 0;

  constructor(packer: Packer, walk: PlainWalk) {
    this.#packer = packer;
    this.#walk = walk;
    this.#eventWords = new NumberedWords(packer, TEXTS_MAX);
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
        default:
          if (!walk.value(1)) return false;
          walk.keep(from);
      }
    } while (walk.takes(COMMA));
    if (!walk.takes(CLOSE_BRACE) || eventName === NO_TEXT) return false;
    const isKept = walk.takeKept();
    const start = isKept ? this.#base + walk.textStart : EMPTY_OBJECT;
    const end = isKept ? this.#base + walk.textEnd : NO_TEXT;
    packEvent(this.#packer, eventName, start, end, idStart, idEnd, timestamp, amountOf(revenue), amountOf(value));
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

function amountOf(amount: number): number | null {
  return Number.isNaN(amount) ? null : amount;
}
