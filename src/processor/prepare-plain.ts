/**
 * The fast path for ordinary records: scans a body once and packs its users as they come, without parsing it into
 * objects and serialising those again. Whatever is unusual (white space, an escape, a name given twice or beginning
 * with a digit, a number that JavaScript would write in another way, anything unknown) is left to parsing.
 *
 * Invariant: what is packed equals what parsing would give. Relies on what the edge has checked: the body is UTF-8, and
 * all of its users are valid.
 */

import { isAscii } from 'node:buffer';
import type { MatchOptions } from '../identity/match-keys.ts';
import { BACKSLASH, END, JsonScanner, LOWER_N, MINUS, OTHER, QUOTE, ZERO } from '../json/scanner.ts';
import { StringInterner, STRINGS_MAX } from '../json/string-interner.ts';
import type { LogRecord } from '../log.ts';
import { LIMITS } from '../model.ts';
import type { RecordHeader } from '../store-writer.ts';
import { currencyOf, NO_CURRENCY, OTHER_CURRENCY } from '../views/currency.ts';
import { parseIso8601, parseUsualTime, USUAL_TIME_LENGTH } from '../validation/iso8601.ts';
import { KeptMembers } from './kept-members.ts';
import { EMPTY_OBJECT, NO_TEXT, type Packer } from './packer.ts';
import {
  packEvent,
  packHeader,
  packNoRejections,
  roomForUser,
  setEventCount,
  setFields,
  setShape,
  setNoUpdate,
  setProperties,
} from './packing.ts';
import { PlainKeys } from './plain-keys.ts';
import { type Shape, ShapeTrie } from './shape-trie.ts';

/** Names that mean something, numbered in this order. */
const NAMES = [
  ...['users', 'identifiers', 'user_properties', 'events', 'user_id', 'email', 'phone_number', 'anon_id'],
  ...['event_name', 'timestamp', 'revenue', 'event_value', '$event_id', 'currency'],
] as const;
const [USERS, IDENTIFIERS, USER_PROPERTIES, EVENTS, USER_ID, EMAIL, PHONE_NUMBER, ANON_ID] = [0, 1, 2, 3, 4, 5, 6, 7];
const [EVENT_NAME, TIMESTAMP, REVENUE, EVENT_VALUE, EVENT_ID, CURRENCY] = [8, 9, 10, 11, 12, 13];
/** What the first name of an object comes after: by kind of object, and by depth. No name holds a NUL. */
const BEGINNINGS = ['\0user', '\0identifiers', '\0properties', '\0event', '\0nested'];
const [USER_BEGINS, IDENTIFIERS_BEGIN, PROPERTIES_BEGIN, EVENT_BEGINS, NESTED_BEGINS] = [14, 15, 16, 17, 18];

/** A user who has more new names than this may be left to parsing. */
const ROOM_FOR_USER = 600;
const SHAPES_MAX = 8_192;
const NESTING_MAX = 32;
/** A double keeps any 15 digits; with at most 6 behind the point it is never written with an exponent. */
const NUMBER_BYTES_MAX = 15;
const FRACTION_DIGITS_MAX = 6;
const POWERS_OF_TEN = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000] as const;
/** Instead of an amount. */
const NO_AMOUNT = Number.NaN;
const ODD_AMOUNT = Number.POSITIVE_INFINITY;

export class PlainPreparer {
  readonly #packer: Packer;
  readonly #keys: PlainKeys;
  readonly #names = new StringInterner([...NAMES, ...BEGINNINGS], isPlainName);
  readonly #shapes = new ShapeTrie(this.#names);
  readonly #eventNames = new StringInterner(['']);
  #lastEventName = 0;
  readonly #currencies = new StringInterner(['']);
  /** By number: its number in this batch; 0 if it has none yet. A map of strings is slower. */
  readonly #eventNumbers = new Int32Array(STRINGS_MAX);
  readonly #currencyNumbers = new Int32Array(STRINGS_MAX);
  #batch = 0;
  readonly #kept = new KeptMembers();
  #scanner = new JsonScanner(new Uint8Array(0));
  /** What the first unit of the body is packed as. */
  #base = 0;
  #eventCount = 0;
  /** Objects are numbered; by depth and name: the last object that had it. */
  #objects = 0;
  readonly #lastObjects = new Int32Array(NESTING_MAX * STRINGS_MAX);

  constructor(packer: Packer, options: MatchOptions) {
    this.#packer = packer;
    this.#keys = new PlainKeys(packer, options);
  }

  /** Packs a record without rejections; null, and nothing is packed, if not all of its users are ordinary. */
  pack(record: LogRecord, header: RecordHeader): { readonly users: number; readonly events: number } | null {
    const { body } = record;
    if (Buffer.from(body.buffer, body.byteOffset, body.byteLength).includes(BACKSLASH)) return null;
    const packer = this.#packer;
    const scanner = new JsonScanner(body);
    const isNarrow = isAscii(body);
    const taken = packer.take(body, isNarrow);
    const offset = packer.offset();
    if (this.#batch !== packer.batch) {
      this.#batch = packer.batch;
      this.#eventNumbers.fill(0);
      this.#currencyNumbers.fill(0);
    }
    this.#scanner = scanner;
    this.#base = taken.base;
    this.#kept.begin(taken, body.length, isNarrow ? body.length : scanner.text.length);
    packHeader(packer, header);
    const countAt = packer.room(1);
    const users = this.#users(record);
    if (users === 0 || scanner.hasWhiteSpace || !scanner.finish()) {
      packer.truncate(offset);
      return null;
    }
    packer.set(countAt, users);
    packNoRejections(packer);
    packer.keep(taken, this.#kept.bytes, this.#kept.units);
    return { users, events: this.#eventCount };
  }

  /** Returns how many there are; 0 if they are not all ordinary. So do others below. */
  #users({ receivedAt, firstUserIndex }: LogRecord): number {
    const scanner = this.#scanner;
    this.#eventCount = 0;
    if (!scanner.openObject() || scanner.nextInternedKey(this.#names, 0) !== USERS || !scanner.openArray()) return 0;
    let users = 0;
    while (scanner.nextElement()) {
      if (!this.#user(firstUserIndex + users, receivedAt)) return 0;
      users++;
    }
    return scanner.nextInternedKey(this.#names, 0) === END ? users : 0;
  }

  #user(userIndex: number, receivedAt: number): boolean {
    const scanner = this.#scanner;
    const packer = this.#packer;
    this.#makeRoom();
    const user = roomForUser(packer, userIndex);
    const { empty } = this.#shapes;
    let fields: Shape | null = null;
    let properties: Shape | null = empty;
    let events = 0;
    setProperties(packer, user, EMPTY_OBJECT, NO_TEXT);
    if (!scanner.openObject()) return false;
    const object = this.#nextObject();
    for (let name = this.#name(USER_BEGINS, 0, object); name !== END; name = this.#name(name, 0, object)) {
      if (name === IDENTIFIERS) {
        fields = this.#identifiers(user);
        if (fields === null) return false;
      } else if (name === USER_PROPERTIES) {
        properties = this.#properties(user);
        if (properties === null) return false;
      } else if (name === EVENTS) {
        events = this.#events(receivedAt);
        if (events === 0) return false;
      } else {
        return false;
      }
    }
    if (events === 0 || fields === null) return false;
    if (fields === empty && properties === empty) setNoUpdate(packer, user);
    else setShape(packer, user, packer.word(this.#shapes.namesOf(fields, properties)), false);
    setEventCount(packer, user, events);
    this.#keys.pack(user);
    this.#eventCount += events;
    return true;
  }

  /** Numbers of names, and shapes, are good for one user. */
  #makeRoom(): void {
    if (this.#names.room < ROOM_FOR_USER || this.#shapes.size > SHAPES_MAX) {
      this.#names.clear();
      this.#shapes.clear();
    }
    if (this.#eventNames.room < 1) {
      this.#eventNames.clear();
      this.#eventNumbers.fill(0);
      this.#lastEventName = 0;
    }
    if (this.#currencies.room < 1) {
      this.#currencies.clear();
      this.#currencyNumbers.fill(0);
    }
  }

  /** Numbers come again after so many objects that none remembers them. */
  #nextObject(): number {
    this.#objects = (this.#objects + 1) | 0;
    return this.#objects;
  }

  /** The next name of an object; `OTHER` if it has to be left to parsing. */
  #name(before: number, depth: number, object: number): number {
    const name = this.#scanner.nextInternedKey(this.#names, before);
    if (name < 0) return name;
    const place = depth * STRINGS_MAX + name;
    if (this.#lastObjects[place] === object) return OTHER;
    this.#lastObjects[place] = object;
    return name;
  }

  /** Takes the four that name a person, keeps the others, and returns the list of their names; null if left to parsing. */
  #identifiers(user: number): Shape | null {
    const scanner = this.#scanner;
    const kept = this.#kept;
    let shape = this.#shapes.empty;
    let names = 0;
    this.#keys.clear();
    kept.clear();
    if (!scanner.openObject()) return null;
    const object = this.#nextObject();
    for (let name = this.#name(IDENTIFIERS_BEGIN, 1, object); name !== END; name = this.#name(name, 1, object)) {
      const from = scanner.stringStart - 1;
      const fromUnit = scanner.stringStartOffset - 1;
      const code = scanner.peek();
      if (name === USER_ID || name === EMAIL || name === PHONE_NUMBER || name === ANON_ID) {
        if (code === LOWER_N) scanner.skipValue();
        else if (!this.#keys.take(scanner, this.#base, name - USER_ID)) return null;
      } else {
        if (name === OTHER || !this.#value(2)) return null;
        if (code === LOWER_N) continue;
        if (++names > LIMITS.namesPerPersonMax) return null;
        kept.keep(from, fromUnit, scanner);
        shape = this.#shapes.add(shape, name);
      }
    }
    if (kept.finish()) setFields(this.#packer, user, kept.start, kept.end);
    else setFields(this.#packer, user, EMPTY_OBJECT, NO_TEXT);
    return shape;
  }

  /** Keeps all, and returns the list of their names. */
  #properties(user: number): Shape | null {
    const scanner = this.#scanner;
    let shape = this.#shapes.empty;
    let names = 0;
    if (scanner.peek() === LOWER_N) return scanner.skipValue() ? shape : null;
    const start = this.#base + scanner.offset;
    if (!scanner.openObject()) return null;
    const object = this.#nextObject();
    for (let name = this.#name(PROPERTIES_BEGIN, 1, object); name !== END; name = this.#name(name, 1, object)) {
      if (name === OTHER || ++names > LIMITS.namesPerPersonMax || !this.#value(2)) return null;
      shape = this.#shapes.add(shape, name);
    }
    if (names > 0) setProperties(this.#packer, user, start, this.#base + scanner.offset);
    return shape;
  }

  #events(receivedAt: number): number {
    const scanner = this.#scanner;
    let events = 0;
    if (!scanner.openArray()) return 0;
    while (scanner.nextElement()) {
      if (!this.#event(receivedAt)) return 0;
      events++;
    }
    return events;
  }

  #event(receivedAt: number): boolean {
    const scanner = this.#scanner;
    const kept = this.#kept;
    const packer = this.#packer;
    const base = this.#base;
    let eventName = NO_TEXT;
    let timestamp = receivedAt;
    let revenue = NO_AMOUNT;
    let value = NO_AMOUNT;
    let idStart = NO_TEXT;
    let idEnd = NO_TEXT;
    let currency = NO_TEXT;
    if (!scanner.openObject()) return false;
    const object = this.#nextObject();
    kept.clear();
    for (let name = this.#name(EVENT_BEGINS, 1, object); name !== END; name = this.#name(name, 1, object)) {
      if (name === EVENT_NAME) {
        if (!scanner.string()) return false;
        eventName = this.#eventName();
        continue;
      }
      if (name === TIMESTAMP) {
        if (scanner.peek() === LOWER_N) scanner.skipValue();
        else timestamp = this.#timestamp();
        if (Number.isNaN(timestamp)) return false;
        continue;
      }
      if (name === REVENUE || name === EVENT_VALUE) {
        const amount = this.#amount();
        if (amount === ODD_AMOUNT) return false;
        if (name === REVENUE) revenue = amount;
        else value = amount;
        continue;
      }
      const from = scanner.stringStart - 1;
      const fromUnit = scanner.stringStartOffset - 1;
      const valueAt = scanner.at;
      if (name === OTHER || !this.#value(2)) return false;
      kept.keep(from, fromUnit, scanner);
      if (name === EVENT_ID && scanner.bytes[valueAt] === QUOTE) {
        idStart = base + scanner.stringStartOffset;
        idEnd = base + scanner.stringEndOffset;
      } else if (name === CURRENCY && scanner.bytes[valueAt] !== LOWER_N) {
        currency = scanner.bytes[valueAt] === QUOTE ? this.#currency() : packer.word(OTHER_CURRENCY);
      }
    }
    if (eventName === NO_TEXT) return false;
    const isKept = kept.finish();
    const start = isKept ? kept.start : EMPTY_OBJECT;
    const end = isKept ? kept.end : NO_TEXT;
    if (Number.isNaN(revenue)) currency = NO_TEXT;
    else if (currency === NO_TEXT) currency = packer.word(NO_CURRENCY);
    packEvent(packer, eventName, start, end, idStart, idEnd, timestamp, amountOf(revenue), amountOf(value), currency);
    return true;
  }

  /** The word for the last string. */
  #eventName(): number {
    const { bytes, stringStart, stringEnd } = this.#scanner;
    const known = this.#eventNames.find(bytes, stringStart, stringEnd, this.#lastEventName);
    if (known === OTHER) return this.#packer.word(this.#scanner.stringText());
    this.#lastEventName = known;
    const word = this.#eventNumbers[known] as number;
    return word === 0 ? (this.#eventNumbers[known] = this.#packer.word(this.#eventNames.string(known))) : word;
  }

  /** The word for the currency that the last string says. */
  #currency(): number {
    const { bytes, stringStart, stringEnd } = this.#scanner;
    const known = this.#currencies.find(bytes, stringStart, stringEnd, 0);
    if (known === OTHER) return this.#packer.word(currencyOf(this.#scanner.stringText()));
    const word = this.#currencyNumbers[known] as number;
    if (word !== 0) return word;
    return (this.#currencyNumbers[known] = this.#packer.word(currencyOf(this.#currencies.string(known))));
  }

  /** The time that the next string says; NaN if it says none. */
  #timestamp(): number {
    const scanner = this.#scanner;
    const { bytes, at } = scanner;
    const end = at + 1 + USUAL_TIME_LENGTH;
    if (bytes[at] === QUOTE && bytes[end] === QUOTE) {
      const usual = parseUsualTime(bytes, at + 1);
      if (!Number.isNaN(usual)) {
        scanner.plainString(end);
        return usual;
      }
    }
    return scanner.string() ? (parseIso8601(scanner.stringText()) ?? Number.NaN) : Number.NaN;
  }

  /** Goes past any value that is written as JavaScript would write it again. */
  #value(depth: number): boolean {
    const scanner = this.#scanner;
    if (scanner.string()) return true;
    const start = scanner.at;
    if (!scanner.number()) return this.#otherValue(depth);
    const { bytes, fractionDigits, at } = scanner;
    return (
      hasFewDigits(scanner, start) && (fractionDigits === 0 ? !isMinusZero(bytes, start, at) : bytes[at - 1] !== ZERO)
    );
  }

  #otherValue(depth: number): boolean {
    const scanner = this.#scanner;
    if (scanner.openObject()) return depth < NESTING_MAX && this.#nestedObject(depth);
    if (scanner.openArray()) return depth < NESTING_MAX && this.#array(depth);
    return scanner.skipValue();
  }

  #nestedObject(depth: number): boolean {
    const object = this.#nextObject();
    for (let name = this.#name(NESTED_BEGINS, depth, object); name !== END; name = this.#name(name, depth, object)) {
      if (name === OTHER || !this.#value(depth + 1)) return false;
    }
    return true;
  }

  #array(depth: number): boolean {
    while (this.#scanner.nextElement()) if (!this.#value(depth + 1)) return false;
    return true;
  }

  /** A number of few digits, or null. */
  #amount(): number {
    const scanner = this.#scanner;
    if (scanner.peek() === LOWER_N) return scanner.skipValue() ? NO_AMOUNT : ODD_AMOUNT;
    const start = scanner.at;
    if (!scanner.number() || !hasFewDigits(scanner, start)) return ODD_AMOUNT;
    const size = scanner.digits / (POWERS_OF_TEN[scanner.fractionDigits] as number);
    if (scanner.bytes[start] !== MINUS) return size;
    return size === 0 ? ODD_AMOUNT : -size;
  }
}

/** Names that are numbers come first in objects, and `__proto__` is rare enough to be parsed. */
function isPlainName(name: string): boolean {
  return !/^(?:\d|__)/.test(name);
}

/** So that the last number, which began there, is a double that JavaScript writes with the same digits. */
function hasFewDigits({ at, hasExponent, fractionDigits }: JsonScanner, start: number): boolean {
  return !hasExponent && at - start <= NUMBER_BYTES_MAX && fractionDigits <= FRACTION_DIGITS_MAX;
}

function isMinusZero(bytes: Uint8Array, start: number, end: number): boolean {
  return end - start === 2 && bytes[start] === MINUS && bytes[start + 1] === ZERO;
}

function amountOf(amount: number): number | null {
  return Number.isNaN(amount) ? null : amount;
}
