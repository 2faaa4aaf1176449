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

/** The rules of one event, in their order. */
const EVENT_RULE = { object: 0, name: 1, timestamp: 2, number: 3, eventId: 4, none: 5 } as const;
type EventRule = (typeof EVENT_RULE)[keyof typeof EVENT_RULE];

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
  let rule: EventRule = EVENT_RULE.none;
  let ruleIndex = 0;
  for (let index = 0; index < events.length && rule !== EVENT_RULE.object; index++) {
    const broken = firstBrokenRule(events[index]);
    if (broken < rule) {
      rule = broken;
      ruleIndex = index;
    }
  }
  return rule === EVENT_RULE.none ? null : eventMessage(rule, ruleIndex, events[ruleIndex]);
}

function firstBrokenRule(event: unknown): EventRule {
  if (!isObject(event)) return EVENT_RULE.object;
  const { event_name: name, timestamp, revenue, event_value: value, $event_id: id } = event;
  if (!isNonBlankString(name) || isLongerThan(name, LIMITS.eventNameCharactersMax)) return EVENT_RULE.name;
  if (isPresent(timestamp) && !isTimestamp(timestamp)) return EVENT_RULE.timestamp;
  if (isPresent(revenue) && !Number.isFinite(revenue)) return EVENT_RULE.number;
  if (isPresent(value) && !Number.isFinite(value)) return EVENT_RULE.number;
  if (isPresent(id) && !isEventId(id)) return EVENT_RULE.eventId;
  return EVENT_RULE.none;
}

function isTimestamp(value: unknown): boolean {
  return typeof value === 'string' && parseIso8601(value) !== undefined;
}

function isEventId(value: unknown): boolean {
  return typeof value === 'string' && value !== '' && !isLongerThan(value, LIMITS.eventIdCharactersMax);
}

function eventMessage(rule: EventRule, index: number, event: unknown): string {
  const path = `events[${index}]`;
  if (rule === EVENT_RULE.object || !isObject(event)) return `${path} must be an object`;
  if (rule === EVENT_RULE.name) {
    const limit = isNonBlankString(event.event_name) ? ` of at most ${LIMITS.eventNameCharactersMax} characters` : '';
    return `${path}.event_name is required and must be a non-empty string${limit}`;
  }
  if (rule === EVENT_RULE.timestamp) return `${path}.timestamp must be an ISO 8601 timestamp`;
  if (rule === EVENT_RULE.number) {
    const revenueIsFine = !isPresent(event.revenue) || Number.isFinite(event.revenue);
    return `${path}.${revenueIsFine ? 'event_value' : 'revenue'} must be a number`;
  }
  return `${path}.$event_id must be a string of 1 to ${LIMITS.eventIdCharactersMax} characters`;
}
