/**
 * What makes a user valid. Rules are taken in a fixed order and the first one that fails is the user's message: rule
 * by rule over all events, so a second event that is not an object comes before a first one without a name. The texts
 * about a missing identifier and missing events are the specification's own, letter for letter.
 *
 * This runs for every user of every request: plain loops, nothing allocated for a valid user. Only values made by
 * `JSON.parse` may be passed in. Names such as `__proto__` are then own members like any other, and the names that are
 * read directly here are not on `Object.prototype`.
 */

import { IDENTIFIER_TYPES, type IdentifierType, LIMITS } from '../model.ts';
import { isBlank, isLongerThan } from './characters.ts';
import { parseIso8601 } from './iso8601.ts';
import { characterViolation, isObject, isPresent, type JsonObject, pathSegment, shapeViolation } from './shape.ts';

const NOT_AN_OBJECT = 'user must be an object';
const NO_IDENTIFIER = 'at least one identifier is required (user_id, email, phone_number, or anon_id)';
const NO_EVENTS = 'events array is required and must not be empty';
const PROPERTIES_NOT_AN_OBJECT = 'user_properties must be an object';

const EVENT_NAME_REQUIRED = '.event_name is required and must be a non-empty string';
const EVENT_NAME_TOO_LONG = `${EVENT_NAME_REQUIRED} of at most ${LIMITS.eventNameCharactersMax} characters`;
const WRONG_EVENT_ID = `.$event_id must be a string of 1 to ${LIMITS.eventIdCharactersMax} characters`;

/**
 * The message of the first rule that the user breaks, or null for a valid user. `checkCharacters` may be false only
 * when the caller knows that no string can hold U+0000 or a lone surrogate.
 */
export function firstViolation(user: unknown, checkCharacters = true): string | null {
  if (!isObject(user)) return NOT_AN_OBJECT;
  const { identifiers, events, user_properties: userProperties } = user;
  if (!isObject(identifiers)) return NO_IDENTIFIER;
  if (!namesSomeone(identifiers)) return wrongIdentifierViolation(identifiers) ?? NO_IDENTIFIER;
  if (!Array.isArray(events) || events.length === 0) return NO_EVENTS;
  const violation = identifiersViolation(identifiers);
  if (violation !== null) return violation;
  if (isPresent(userProperties) && !isObject(userProperties)) return PROPERTIES_NOT_AN_OBJECT;
  return eventsViolation(events) ?? shapeViolation(user) ?? (checkCharacters ? characterViolation(user) : null);
}

/** `null` counts as absent in every optional place. */
function namesSomeone(identifiers: JsonObject): boolean {
  return (
    isNonBlankString(identifiers.user_id) ||
    isNonBlankString(identifiers.email) ||
    isNonBlankString(identifiers.phone_number) ||
    isNonBlankString(identifiers.anon_id)
  );
}

function isNonBlankString(value: unknown): value is string {
  return typeof value === 'string' && !isBlank(value);
}

/**
 * Where no identifier can be used, the first one of a wrong type is named: a number where a string belongs is the most
 * common mistake, and "at least one identifier is required" would mislead.
 */
function wrongIdentifierViolation(identifiers: JsonObject): string | null {
  for (const name in identifiers) {
    const value = identifiers[name];
    if (isIdentifierType(name) && isPresent(value) && typeof value !== 'string') return notAString(name);
  }
  return null;
}

function notAString(name: string): string {
  return `identifiers${pathSegment(name)} must be a string`;
}

function isIdentifierType(name: string): boolean {
  return IDENTIFIER_TYPES.includes(name as IdentifierType);
}

/** Types before lengths: a wrong type further down comes before a text that is too long. */
function identifiersViolation(identifiers: JsonObject): string | null {
  let tooLong: string | null = null;
  for (const name in identifiers) {
    const value = identifiers[name];
    if (typeof value === 'string') {
      if (value.length > LIMITS.identifierCharactersMax && tooLong === null && isIdentifierTooLong(name, value)) {
        tooLong = name;
      }
    } else if (isPresent(value)) {
      return notAString(name);
    }
  }
  if (tooLong === null) return null;
  return `identifiers.${tooLong} must be at most ${LIMITS.identifierCharactersMax} characters`;
}

/** Profile fields may be of any length; only what names a person is indexed. */
function isIdentifierTooLong(name: string, value: string): boolean {
  return isIdentifierType(name) && isLongerThan(value, LIMITS.identifierCharactersMax);
}

/** One pass: the first rule that any event breaks, and the first event that breaks it. */
function eventsViolation(events: readonly unknown[]): string | null {
  let first: BrokenRule | null = null;
  let firstIndex = 0;
  for (let index = 0; index < events.length && first?.rule !== 0; index++) {
    const broken = brokenRuleOf(events[index]);
    if (broken === null || (first !== null && first.rule <= broken.rule)) continue;
    first = broken;
    firstIndex = index;
  }
  return first === null ? null : `events[${firstIndex}]${first.text}`;
}

interface BrokenRule {
  /** Its place in the order of rules. */
  readonly rule: number;
  readonly text: string;
}

function brokenRuleOf(event: unknown): BrokenRule | null {
  if (!isObject(event)) return { rule: 0, text: ' must be an object' };
  const { event_name: name, timestamp, revenue, event_value: value, $event_id: id } = event;
  if (!isNonBlankString(name)) return { rule: 1, text: EVENT_NAME_REQUIRED };
  if (isLongerThan(name, LIMITS.eventNameCharactersMax)) return { rule: 1, text: EVENT_NAME_TOO_LONG };
  if (isPresent(timestamp) && !isTimestamp(timestamp)) {
    return { rule: 2, text: '.timestamp must be an ISO 8601 timestamp' };
  }
  if (isPresent(revenue) && !Number.isFinite(revenue)) return { rule: 3, text: '.revenue must be a number' };
  if (isPresent(value) && !Number.isFinite(value)) return { rule: 3, text: '.event_value must be a number' };
  if (isPresent(id) && !isEventId(id)) return { rule: 4, text: WRONG_EVENT_ID };
  return null;
}

function isTimestamp(value: unknown): boolean {
  return typeof value === 'string' && parseIso8601(value) !== undefined;
}

function isEventId(value: unknown): boolean {
  return typeof value === 'string' && value !== '' && !isLongerThan(value, LIMITS.eventIdCharactersMax);
}
