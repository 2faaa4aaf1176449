/**
 * A quick way for ordinary records: walks over the text of a body once and cuts the prepared users out of it, without
 * parsing it into objects and writing those as text again. Whatever is unusual (white space within a user, an escape, a
 * name given twice or beginning with a digit, a number that would be written in another way, anything unknown) gives
 * null, and `prepareRecord` parses.
 *
 * Invariant: what is returned equals what parsing would give. Relies on what the edge has checked: the text is JSON, and
 * all of its users are valid. The texts are slices of the body's, and keep it in memory.
 */

import { type MatchOptions, matchKeysOf } from '../identity/match-keys.ts';
import { markOf } from './person-mark.ts';
import type { IdentifierType, KeyKind } from '../model.ts';
import type { StatementToStore } from '../store-writer.ts';
import { parseIso8601 } from '../validation/iso8601.ts';
import {
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COMMA,
  LOWER_N,
  OPEN_BRACE,
  OPEN_BRACKET,
  PlainWalk,
  QUOTE,
} from './plain-walk.ts';
import type { PreparedEvent, PreparedUser } from './prepare.ts';

const START = '{"users":[';

export interface PlainContext {
  readonly receivedAt: number;
  readonly traceId: string;
  readonly firstUserIndex: number;
  readonly keyKind: KeyKind;
}

export function preparePlain(text: string, context: PlainContext, options: MatchOptions): PreparedUser[] | null {
  if (!text.startsWith(START) || text.includes('\\')) return null;
  return new PlainUsers(new PlainWalk(text, START.length), context, options).all();
}

type Identifiers = Record<IdentifierType, string | null>;

class PlainUsers {
  readonly #walk: PlainWalk;
  readonly #context: PlainContext;
  readonly #options: MatchOptions;

  constructor(walk: PlainWalk, context: PlainContext, options: MatchOptions) {
    this.#walk = walk;
    this.#context = context;
    this.#options = options;
  }

  all(): PreparedUser[] | null {
    const walk = this.#walk;
    const users: PreparedUser[] = [];
    do {
      const user = this.#user(this.#context.firstUserIndex + users.length);
      if (user === null) return null;
      users.push(user);
    } while (walk.takes(COMMA));
    const isEnd = walk.takes(CLOSE_BRACKET) && walk.takes(CLOSE_BRACE) && walk.isAtEnd();
    return isEnd ? users : null;
  }

  #user(userIndex: number): PreparedUser | null {
    const walk = this.#walk;
    const { receivedAt, traceId, keyKind } = this.#context;
    const identifiers: Identifiers = { user_id: null, email: null, phone_number: null, anon_id: null };
    let events: PreparedEvent[] | null = null;
    let fieldNames: string | null = null;
    let fields = '{}';
    let propertyNames: string | null = '';
    let properties = '{}';
    if (!walk.takes(OPEN_BRACE)) return null;
    const names = walk.enter();
    do {
      if (!walk.name(names)) return null;
      switch (walk.slice()) {
        case 'identifiers':
          fieldNames = this.#identifiers(identifiers);
          if (fieldNames === null) return null;
          fields = walk.keptText();
          break;
        case 'user_properties':
          propertyNames = this.#properties();
          if (propertyNames === null) return null;
          properties = walk.keptText();
          break;
        case 'events':
          events = this.#events();
          if (events === null) return null;
          break;
        default:
          return null;
      }
    } while (walk.takes(COMMA));
    walk.leave(names);
    if (!walk.takes(CLOSE_BRACE) || events === null || fieldNames === null) return null;
    const { keys, junk } = matchKeysOf(identifiers, this.#options);
    const allNames = `${fieldNames}\0${propertyNames}`;
    const statement: StatementToStore | null =
      allNames === '\0' ? null : { names: allNames, fields, properties, isCut: false };
    return {
      origin: { receivedAt, traceId, userIndex },
      keyKind,
      person: markOf(keys),
      keys,
      junk,
      events,
      statement,
    };
  }

  /** Fills in the four that name a person, keeps the others, and returns the names of those. */
  #identifiers(identifiers: Identifiers): string | null {
    const walk = this.#walk;
    let fieldNames = '';
    walk.keepNothing();
    if (!walk.takes(OPEN_BRACE)) return null;
    if (walk.takes(CLOSE_BRACE)) return fieldNames;
    const names = walk.enter();
    do {
      const from = walk.at;
      if (!walk.name(names)) return null;
      const name = walk.slice();
      const isNull = walk.code === LOWER_N;
      const isString = walk.code === QUOTE;
      if (!walk.value(1)) return null;
      switch (name) {
        case 'user_id':
        case 'email':
        case 'phone_number':
        case 'anon_id':
          if (isString) identifiers[name] = walk.slice();
          else if (!isNull) return null;
          walk.leaveOut();
          break;
        default:
          if (isNull) {
            walk.leaveOut();
          } else {
            walk.keep(from);
            fieldNames += `${name}\0`;
          }
      }
    } while (walk.takes(COMMA));
    walk.leave(names);
    return walk.takes(CLOSE_BRACE) ? fieldNames : null;
  }

  /** Keeps all, and returns the names. */
  #properties(): string | null {
    const walk = this.#walk;
    let allNames = '';
    walk.keepNothing();
    if (walk.code === LOWER_N) return walk.value(1) ? allNames : null;
    if (!walk.takes(OPEN_BRACE)) return null;
    if (walk.takes(CLOSE_BRACE)) return allNames;
    const names = walk.enter();
    do {
      const from = walk.at;
      if (!walk.name(names)) return null;
      allNames += `${walk.slice()}\0`;
      if (!walk.value(1)) return null;
      walk.keep(from);
    } while (walk.takes(COMMA));
    walk.leave(names);
    return walk.takes(CLOSE_BRACE) ? allNames : null;
  }

  #events(): PreparedEvent[] | null {
    const walk = this.#walk;
    const events: PreparedEvent[] = [];
    if (!walk.takes(OPEN_BRACKET)) return null;
    do {
      const event = this.#event(events.length);
      if (event === null) return null;
      events.push(event);
    } while (walk.takes(COMMA));
    return walk.takes(CLOSE_BRACKET) ? events : null;
  }

  #event(eventIndex: number): PreparedEvent | null {
    const walk = this.#walk;
    let name: string | null = null;
    let timestamp: number | undefined = this.#context.receivedAt;
    let revenue: number | null = null;
    let value: number | null = null;
    let eventId: string | null = null;
    walk.keepNothing();
    if (!walk.takes(OPEN_BRACE)) return null;
    const names = walk.enter();
    do {
      const from = walk.at;
      if (!walk.name(names)) return null;
      const first = walk.code;
      switch (walk.slice()) {
        case 'event_name':
          if (first !== QUOTE || !walk.value(1)) return null;
          name = walk.slice();
          walk.leaveOut();
          break;
        case 'timestamp':
          if (!walk.value(1)) return null;
          if (first === QUOTE) timestamp = parseIso8601(walk.slice());
          else if (first !== LOWER_N) return null;
          if (timestamp === undefined) return null;
          walk.leaveOut();
          break;
        case 'revenue':
          if (!walk.amount(first)) return null;
          revenue = first === LOWER_N ? null : walk.number;
          walk.leaveOut();
          break;
        case 'event_value':
          if (!walk.amount(first)) return null;
          value = first === LOWER_N ? null : walk.number;
          walk.leaveOut();
          break;
        case '$event_id':
          if (!walk.value(1)) return null;
          if (first === QUOTE) eventId = walk.slice();
          walk.keep(from);
          break;
        default:
          if (!walk.value(1)) return null;
          walk.keep(from);
      }
    } while (walk.takes(COMMA));
    walk.leave(names);
    if (!walk.takes(CLOSE_BRACE) || name === null) return null;
    return { eventIndex, name, timestamp, revenue, value, properties: walk.keptText(), eventId };
  }
}
