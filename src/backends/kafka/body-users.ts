/**
 * Finds the users in the body of a request: the bytes of each, how many events it has, and its strongest identifier. It
 * agrees with `JSON.parse`: the last of duplicate names wins, and names may contain escapes.
 *
 * The body must be JSON with a `users` array, which the edge has checked. Nesting uses no stack.
 */

import { END, JsonScanner, KnownKeys, OTHER, QUOTE } from '../../json/scanner.ts';
import { IDENTIFIER_TYPES, type IdentifierType } from '../../model.ts';

export interface BodyUser {
  readonly start: number;
  readonly end: number;
  /** 0 if `events` is not an array. */
  readonly events: number;
  readonly identifier: { readonly type: IdentifierType; readonly value: string } | null;
}

const BODY_KEYS = new KnownKeys('users');
const USER_KEYS = new KnownKeys('events', 'identifiers');
const EVENTS = 0;
const IDENTIFIERS = 1;
const IDENTIFIER_KEYS = new KnownKeys(...IDENTIFIER_TYPES);

export function usersInBody(body: Uint8Array): BodyUser[] {
  const scanner = new JsonScanner(body);
  let users: BodyUser[] | null = null;
  if (scanner.openObject()) {
    for (let key = scanner.nextKey(BODY_KEYS); key !== END; key = scanner.nextKey(BODY_KEYS)) {
      if (key === OTHER || !scanner.openArray()) {
        scanner.skipValue();
        continue;
      }
      users = [];
      while (scanner.nextElement()) users.push(userOf(scanner));
    }
  }
  if (!scanner.finish()) throw new Error('a body that is not JSON reached the log');
  if (users === null) throw new Error('a body without users reached the log');
  return users;
}

function userOf(scanner: JsonScanner): BodyUser {
  scanner.peek();
  const start = scanner.at;
  let events = 0;
  let identifier: BodyUser['identifier'] = null;
  if (scanner.openObject()) {
    for (let key = scanner.nextKey(USER_KEYS); key !== END; key = scanner.nextKey(USER_KEYS)) {
      if (key === EVENTS) events = countElements(scanner);
      else if (key === IDENTIFIERS) identifier = strongestIdentifier(scanner);
      else scanner.skipValue();
    }
  } else {
    scanner.skipValue();
  }
  return { start, end: scanner.at, events, identifier };
}

function countElements(scanner: JsonScanner): number {
  let count = 0;
  if (!scanner.openArray()) {
    scanner.skipValue();
    return 0;
  }
  for (; scanner.nextElement(); count++) scanner.skipValue();
  return count;
}

/** The first in the order of types that is a string and not empty. */
function strongestIdentifier(scanner: JsonScanner): BodyUser['identifier'] {
  if (!scanner.openObject()) {
    scanner.skipValue();
    return null;
  }
  const values: string[] = IDENTIFIER_TYPES.map(() => '');
  for (let key = scanner.nextKey(IDENTIFIER_KEYS); key !== END; key = scanner.nextKey(IDENTIFIER_KEYS)) {
    const isString = scanner.peek() === QUOTE;
    scanner.skipValue();
    if (key !== OTHER) values[key] = isString ? scanner.stringText() : '';
  }
  const strongest = values.findIndex((value) => value !== '');
  return strongest < 0
    ? null
    : { type: IDENTIFIER_TYPES[strongest] as IdentifierType, value: values[strongest] as string };
}
