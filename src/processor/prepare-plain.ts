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
import { UNKNOWN } from './known-texts.ts';
import { EMPTY_LIST } from './name-lists.ts';
import { EMPTY_OBJECT, NO_TEXT, type Packer } from './packer.ts';
import { packHeader, packNoRejections, roomForUser, setEventCount, setFields, setProperties } from './packing.ts';
import { PlainEvents } from './plain-events.ts';
import { PlainKeys } from './plain-keys.ts';
import { BEGINNING, NAME } from './plain-names.ts';
import { CLOSE_BRACE, CLOSE_BRACKET, COMMA, LOWER_N, OPEN_BRACE, PlainWalk, QUOTE } from './plain-walk.ts';
import { StatementNames } from './statement-names.ts';

const START = Buffer.from('{"users":[');
const BACKSLASH = 0x5c;
/** For new names, and lists of them. A user who has more may be left to parsing. */
const ROOM_FOR_USER = 600;

export class PlainPreparer {
  readonly #packer: Packer;
  readonly #options: MatchOptions;
  readonly #walk = new PlainWalk();
  readonly #keys: PlainKeys;
  readonly #statements: StatementNames;
  readonly #events: PlainEvents;
  #base = 0;
  #eventCount = 0;

  constructor(packer: Packer, options: MatchOptions) {
    this.#packer = packer;
    this.#options = options;
    this.#keys = new PlainKeys(packer);
    this.#statements = new StatementNames(packer, this.#walk.names);
    this.#events = new PlainEvents(packer, this.#walk);
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
    return { users, events: this.#eventCount };
  }

  /** Returns how many there are. */
  #users({ body, receivedAt, firstUserIndex }: LogRecord): number {
    const walk = this.#walk;
    const taken = this.#packer.take(body, isAscii(body));
    walk.begin(taken);
    this.#base = taken.base;
    this.#eventCount = 0;
    if (!START.every((code) => walk.takes(code))) return 0;
    let users = 0;
    do {
      if (!this.#user(firstUserIndex + users, receivedAt)) return 0;
      users++;
    } while (walk.takes(COMMA));
    if (!walk.takes(CLOSE_BRACKET) || !walk.takes(CLOSE_BRACE) || !walk.isAtEnd()) return 0;
    this.#packer.keepUpTo(taken, walk.keptUpTo);
    return users;
  }

  #user(userIndex: number, receivedAt: number): boolean {
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
          events = this.#events.pack(this.#base, receivedAt);
          if (events === 0) return false;
          break;
        default:
          return false;
      }
    } while (walk.takes(COMMA));
    if (!walk.takes(CLOSE_BRACE) || events === 0 || fieldNames === UNKNOWN) return false;
    this.#statements.set(user, fieldNames, propertyNames);
    setEventCount(this.#packer, user, events);
    this.#keys.pack(user);
    this.#eventCount += events;
    return true;
  }

  /** Numbers of names and lists are good for one user. */
  #makeRoom(): void {
    if (Math.min(this.#walk.names.room, this.#statements.room) < ROOM_FOR_USER) {
      this.#walk.names.clear();
      this.#statements.clear();
    }
    this.#events.makeRoom();
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
          list = this.#statements.lists.add(list, name);
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
      list = this.#statements.lists.add(list, name);
    } while (walk.takes(COMMA));
    if (!walk.takes(CLOSE_BRACE)) return UNKNOWN;
    setProperties(this.#packer, user, this.#base + start, this.#base + walk.at);
    return list;
  }
}
