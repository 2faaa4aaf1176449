/**
 * The fast path for ordinary requests: scans the bytes once, allocates no objects, and counts users and events if every
 * user is valid. For anything unusual or wrong (a duplicate name, a report of dropped events, a number with an exponent
 * where a number is expected) it returns null, and `validateRequest` decides. It takes less than half the time of
 * `JSON.parse` with the validator, and makes no garbage.
 *
 * Invariant: counts are returned only where `validateRequest` finds the same ones and no rejection. The caller has
 * checked that the bytes are UTF-8.
 */

import { END, JsonScanner, KnownKeys, LOWER_N, OPEN_BRACE, OTHER } from '../json/scanner.ts';
import { LIMITS } from '../model.ts';
import { isBlank, isLongerThan } from './characters.ts';
import { parseIso8601, parseUsualTime, USUAL_TIME_LENGTH } from './iso8601.ts';
import { DROPPED_BY_CLIENT } from './validate-request.ts';

interface PlainCounts {
  readonly userCount: number;
  readonly eventCount: number;
}

const BODY_KEYS = new KnownKeys('users');
const IDENTIFIER_KEYS = new KnownKeys('user_id', 'email', 'phone_number', 'anon_id');

const USER_KEYS = new KnownKeys('identifiers', 'user_properties', 'events');
const IDENTIFIERS = 0;
const USER_PROPERTIES = 1;
const EVENTS = 2;

const EVENT_KEYS = new KnownKeys('event_name', 'timestamp', 'revenue', 'event_value', '$event_id');
const EVENT_NAME = 0;
const TIMESTAMP = 1;
const EVENT_ID = 4;

/** Any number with fewer characters and no exponent is finite. */
const NUMBER_BYTES_MAX = 300;

export function acceptPlain(body: Uint8Array): PlainCounts | null {
  const scanner = new JsonScanner(body);
  if (!scanner.openObject()) return null;
  let userCount = 0;
  let eventCount = 0;
  for (let key = scanner.nextKey(BODY_KEYS); key !== END; key = scanner.nextKey(BODY_KEYS)) {
    if (key === OTHER) {
      if (scanner.stringText() === DROPPED_BY_CLIENT) return null;
      scanner.skipValue();
      continue;
    }
    // If a name occurs twice, the last value counts, which is not known yet.
    if (userCount > 0 || !scanner.openArray()) return null;
    while (scanner.nextElement()) {
      const events = eventsOfUser(scanner);
      if (events === 0) return null;
      eventCount += events;
      userCount++;
    }
  }
  if (!scanner.finish() || userCount === 0 || userCount > LIMITS.usersPerRequestMax) return null;
  return isWithinLimits(scanner) ? { userCount, eventCount } : null;
}

/** Whether all that was scanned is within the limits of keys, nesting and characters. */
function isWithinLimits({ longestKeyBytes, deepest, hasRiskyEscape }: JsonScanner): boolean {
  return longestKeyBytes <= LIMITS.propertyKeyCharactersMax && deepest <= LIMITS.nestingDepthMax && !hasRiskyEscape;
}

/** How many events the user has; 0 if it is not plain or not valid. */
function eventsOfUser(scanner: JsonScanner): number {
  if (!scanner.openObject()) return 0;
  let seen = 0;
  let events = 0;
  for (let key = scanner.nextKey(USER_KEYS); key !== END; key = scanner.nextKey(USER_KEYS)) {
    if (key === OTHER) {
      scanner.skipValue();
      continue;
    }
    if ((seen & (1 << key)) !== 0) return 0;
    seen |= 1 << key;
    if (key === IDENTIFIERS) {
      if (!identifiers(scanner)) return 0;
    } else if (key === EVENTS) {
      events = countEvents(scanner);
      if (events === 0) return 0;
    } else if (key === USER_PROPERTIES && !isNull(scanner)) {
      if (scanner.peek() !== OPEN_BRACE || !scanner.skipValue()) return 0;
    }
  }
  return (seen & (1 << IDENTIFIERS)) === 0 ? 0 : events;
}

function identifiers(scanner: JsonScanner): boolean {
  if (!scanner.openObject()) return false;
  let seen = 0;
  for (let key = scanner.nextKey(IDENTIFIER_KEYS); key !== END; key = scanner.nextKey(IDENTIFIER_KEYS)) {
    if (key !== OTHER) {
      if ((seen & (1 << key)) !== 0) return false;
      seen |= 1 << key;
    }
    if (!scanner.string()) return false;
    if (key !== OTHER && !isName(scanner, LIMITS.identifierCharactersMax)) return false;
  }
  return seen !== 0;
}

function countEvents(scanner: JsonScanner): number {
  if (!scanner.openArray()) return 0;
  let count = 0;
  while (scanner.nextElement()) {
    if (!event(scanner)) return 0;
    count++;
  }
  return count;
}

function event(scanner: JsonScanner): boolean {
  if (!scanner.openObject()) return false;
  let seen = 0;
  for (let key = scanner.nextKey(EVENT_KEYS); key !== END; key = scanner.nextKey(EVENT_KEYS)) {
    if (key === OTHER) {
      scanner.skipValue();
      continue;
    }
    if ((seen & (1 << key)) !== 0 || !eventMember(scanner, key)) return false;
    seen |= 1 << key;
  }
  return (seen & (1 << EVENT_NAME)) !== 0;
}

function eventMember(scanner: JsonScanner, key: number): boolean {
  if (key === EVENT_NAME) return scanner.string() && isName(scanner, LIMITS.eventNameCharactersMax);
  if (isNull(scanner)) return true;
  if (key === EVENT_ID) return scanner.string() && isName(scanner, LIMITS.eventIdCharactersMax);
  if (key === TIMESTAMP) return scanner.string() && isTimestamp(scanner);
  const start = scanner.at;
  return scanner.number() && !scanner.hasExponent && scanner.at - start <= NUMBER_BYTES_MAX;
}

/** Null counts as absent. */
function isNull(scanner: JsonScanner): boolean {
  return scanner.peek() === LOWER_N && scanner.skipValue();
}

/** Whether the last string is not blank, and has no more characters than that. */
function isName(scanner: JsonScanner, charactersMax: number): boolean {
  const first = scanner.bytes[scanner.stringStart] as number;
  const isPrintable = first > 0x20 && first < 0x7f && !scanner.isEscaped;
  if (isPrintable && scanner.stringEnd - scanner.stringStart <= charactersMax)
    return scanner.stringEnd > scanner.stringStart;
  const text = scanner.stringText();
  return !isBlank(text) && !isLongerThan(text, charactersMax);
}

function isTimestamp(scanner: JsonScanner): boolean {
  const { bytes, stringStart, stringEnd } = scanner;
  if (stringEnd - stringStart === USUAL_TIME_LENGTH && !Number.isNaN(parseUsualTime(bytes, stringStart))) return true;
  return parseIso8601(scanner.stringText()) !== undefined;
}
