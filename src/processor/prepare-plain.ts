/**
 * A quick way for ordinary records: walks over the characters of a body once and packs its users as they come, without
 * parsing it into objects and writing those as text again. Whatever is unusual (white space within a user, an escape, a
 * name given twice or beginning with a digit, a number that would be written in another way, anything unknown) is left
 * to whoever parses.
 *
 * Invariant: what is packed equals what parsing would give. Relies on what the edge has checked: the text is JSON, and
 * all of its users are valid.
 */

import { isAscii } from 'node:buffer';
import type { MatchOptions } from '../identity/match-keys.ts';
import type { LogRecord } from '../log.ts';
import type { RecordHeader } from '../store-writer.ts';
import { parseIso8601, parseUsualTime, USUAL_TIME_LENGTH } from '../validation/iso8601.ts';
import { KnownTexts, TEXTS_MAX, UNKNOWN } from './known-texts.ts';
import { EMPTY_LIST, LISTS_MAX, NameLists } from './name-lists.ts';
import { NumberedWords } from './numbered-words.ts';
import { EMPTY_OBJECT, NO_TEXT, type Packer } from './packer.ts';
import {
  packEvent,
  packHeader,
  packNoRejections,
  roomForUser,
  setEventCount,
  setFields,
  setNames,
  setNothingSaid,
  setProperties,
} from './packing.ts';
import { PlainKeys } from './plain-keys.ts';
import {
  BEGINNING,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COMMA,
  LOWER_N,
  NAME,
  OPEN_BRACE,
  OPEN_BRACKET,
  PlainWalk,
  QUOTE,
} from './plain-walk.ts';

const START = '{"users":[';
const BACKSLASH = 0x5c;
/** So many new names and lists of them a user may have; few do, and then the next may not. */
const ROOM_FOR_USER = 600;
const STATEMENTS_MAX = 4_096;

export class PlainPreparer {
  readonly #packer: Packer;
  readonly #options: MatchOptions;
  readonly #walk = new PlainWalk();
  readonly #keys: PlainKeys;
  readonly #lists = new NameLists((name) => this.#walk.names.text(name));
  /** By the list of its fields and that of its properties: all names of a statement. */
  readonly #statements = new Map<number, number>();
  #statementTexts: string[] = [];
  readonly #statementWords: NumberedWords;
  #lastStatement = 0;
  #lastLists = UNKNOWN;
  readonly #eventNames = new KnownTexts(['']);
  readonly #eventWords: NumberedWords;
  #lastEventName = 0;
  #receivedAt = 0;
  #base = 0;
  /** Of all users of the record. */
  #events = 0;

  constructor(packer: Packer, options: MatchOptions) {
    this.#packer = packer;
    this.#options = options;
    this.#keys = new PlainKeys(packer);
    this.#statementWords = new NumberedWords(packer, STATEMENTS_MAX);
    this.#eventWords = new NumberedWords(packer, TEXTS_MAX);
  }

  /** Packs a record without rejections; null, and nothing is packed, if not all of its users are ordinary. */
  pack(record: LogRecord, header: RecordHeader): { readonly users: number; readonly events: number } | null {
    const { body } = record;
    if (Buffer.from(body.buffer, body.byteOffset, body.byteLength).includes(BACKSLASH)) return null;
    const packer = this.#packer;
    const start = packer.place();
    packHeader(packer, header);
    const countAt = packer.room(1);
    const users = this.#users(record);
    if (users === 0) {
      packer.goBack(start);
      return null;
    }
    packer.set(countAt, users);
    packNoRejections(packer);
    return { users, events: this.#events };
  }

  /** Returns how many there are. */
  #users({ body, receivedAt, firstUserIndex }: LogRecord): number {
    const walk = this.#walk;
    const taken = this.#packer.take(body, isAscii(body));
    walk.begin(taken);
    this.#base = taken.base;
    this.#receivedAt = receivedAt;
    this.#events = 0;
    if (!walk.takesAll(START)) return 0;
    let users = 0;
    do {
      if (!this.#user(firstUserIndex + users)) return 0;
      users++;
    } while (walk.takes(COMMA));
    if (!walk.takes(CLOSE_BRACKET) || !walk.takes(CLOSE_BRACE) || !walk.isAtEnd()) return 0;
    this.#packer.keepUpTo(taken, walk.keptUpTo);
    return users;
  }

  #user(userIndex: number): boolean {
    const walk = this.#walk;
    this.#makeRoom();
    const user = roomForUser(this.#packer, userIndex);
    let fieldNames = UNKNOWN;
    let propertyNames: number = EMPTY_LIST;
    let events = 0;
    let name: number = BEGINNING.user;
    let seen = 0;
    setProperties(this.#packer, user, EMPTY_OBJECT, NO_TEXT);
    if (!walk.takes(OPEN_BRACE)) return false;
    do {
      name = walk.anyName(name);
      if ((seen & (1 << name)) !== 0) return false;
      seen |= 1 << name;
      switch (name) {
        case NAME.identifiers:
          fieldNames = this.#identifiers(user);
          if (fieldNames === UNKNOWN) return false;
          break;
        case NAME.user_properties:
          propertyNames = this.#properties(user);
          if (propertyNames === UNKNOWN) return false;
          break;
        case NAME.events:
          events = this.#eventList();
          if (events === 0) return false;
          break;
        default:
          return false;
      }
    } while (walk.takes(COMMA));
    if (!walk.takes(CLOSE_BRACE) || events === 0 || fieldNames === UNKNOWN) return false;
    this.#names(user, fieldNames, propertyNames);
    setEventCount(this.#packer, user, events);
    this.#keys.pack(user);
    this.#events += events;
    return true;
  }

  /** Numbers of names and lists are good for one user. */
  #makeRoom(): void {
    const room = Math.min(this.#walk.names.room, this.#lists.room / 2, STATEMENTS_MAX - this.#statementTexts.length);
    if (room < ROOM_FOR_USER) {
      this.#walk.names.clear();
      this.#lists.clear();
      this.#statements.clear();
      this.#statementTexts = [];
      this.#statementWords.clear();
      this.#lastLists = UNKNOWN;
    }
    if (this.#eventNames.room < 1) {
      this.#eventNames.clear();
      this.#eventWords.clear();
    }
  }

  #names(user: number, fieldNames: number, propertyNames: number): void {
    if (fieldNames === EMPTY_LIST && propertyNames === EMPTY_LIST) {
      setNothingSaid(this.#packer, user);
      return;
    }
    const lists = fieldNames * LISTS_MAX + propertyNames;
    if (lists !== this.#lastLists) {
      this.#lastStatement = this.#statements.get(lists) ?? this.#newStatement(lists, fieldNames, propertyNames);
      this.#lastLists = lists;
    }
    const statement = this.#lastStatement;
    const names = this.#statementWords.word(statement, this.#statementTexts[statement] as string);
    setNames(this.#packer, user, names, false);
  }

  #newStatement(lists: number, fieldNames: number, propertyNames: number): number {
    const statement = this.#statementTexts.length;
    this.#statementTexts.push(`${this.#lists.text(fieldNames)}\0${this.#lists.text(propertyNames)}`);
    this.#statements.set(lists, statement);
    return statement;
  }

  /** Takes the four that name a person, keeps the others, and returns the list of their names. */
  #identifiers(user: number): number {
    const walk = this.#walk;
    let list: number = EMPTY_LIST;
    this.#keys.clear();
    if (!walk.takes(OPEN_BRACE)) return UNKNOWN;
    if (walk.takes(CLOSE_BRACE)) return this.#fields(user, list);
    walk.enter();
    let name: number = BEGINNING.identifiers;
    do {
      const from = walk.at;
      name = walk.name(name);
      const { code } = walk;
      switch (name) {
        case UNKNOWN:
          return UNKNOWN;
        case NAME.user_id:
        case NAME.email:
        case NAME.phone_number:
        case NAME.anon_id:
          if (code === QUOTE ? !this.#keys.take(walk, this.#base, name - NAME.user_id, this.#options) : !walk.null()) {
            return UNKNOWN;
          }
          break;
        default:
          if (!walk.value(1)) return UNKNOWN;
          if (code === LOWER_N) break;
          walk.keep(from);
          list = this.#lists.add(list, name);
      }
    } while (walk.takes(COMMA));
    return walk.takes(CLOSE_BRACE) ? this.#fields(user, list) : UNKNOWN;
  }

  #fields(user: number, list: number): number {
    if (list !== EMPTY_LIST && this.#walk.takeKept()) {
      setFields(this.#packer, user, this.#base + this.#walk.textStart, this.#base + this.#walk.textEnd);
    } else {
      setFields(this.#packer, user, EMPTY_OBJECT, NO_TEXT);
    }
    return list;
  }

  /** Keeps all, and returns the list of their names. */
  #properties(user: number): number {
    const walk = this.#walk;
    const start = walk.at;
    let list: number = EMPTY_LIST;
    if (walk.code === LOWER_N) return walk.null() ? list : UNKNOWN;
    if (!walk.takes(OPEN_BRACE)) return UNKNOWN;
    if (walk.takes(CLOSE_BRACE)) return list;
    walk.enter();
    let name: number = BEGINNING.properties;
    do {
      name = walk.name(name);
      if (name === UNKNOWN || !walk.value(1)) return UNKNOWN;
      list = this.#lists.add(list, name);
    } while (walk.takes(COMMA));
    if (!walk.takes(CLOSE_BRACE)) return UNKNOWN;
    setProperties(this.#packer, user, this.#base + start, this.#base + walk.at);
    return list;
  }

  /** Returns how many there are. */
  #eventList(): number {
    const walk = this.#walk;
    let events = 0;
    if (!walk.takes(OPEN_BRACKET)) return 0;
    do {
      if (!this.#event()) return 0;
      events++;
    } while (walk.takes(COMMA));
    return walk.takes(CLOSE_BRACKET) ? events : 0;
  }

  #event(): boolean {
    const walk = this.#walk;
    let eventName = NO_TEXT;
    let timestamp = this.#receivedAt;
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
    walk.goTo(start + this.#eventNames.length(known) + 1);
    return this.#eventWords.word(known, this.#eventNames.text(known));
  }

  #timestamp(): number {
    const walk = this.#walk;
    const start = walk.at + 1;
    const end = start + USUAL_TIME_LENGTH;
    if (walk.code === QUOTE && walk.characters[end] === QUOTE) {
      const usual = parseUsualTime(walk.characters, start);
      if (!Number.isNaN(usual)) {
        walk.goTo(end + 1);
        return usual;
      }
    }
    return walk.string() ? (parseIso8601(walk.text()) ?? Number.NaN) : Number.NaN;
  }
}

function amountOf(amount: number): number | null {
  return Number.isNaN(amount) ? null : amount;
}
