/**
 * The rules that hold for everything inside a user, whatever it is called: nesting, length of keys, characters that
 * cannot be stored. The value of one property (a member of `identifiers`, of `user_properties`, of an event, or any
 * other member of the user) may hold at most 64 arrays and objects inside one another, which also bounds the
 * recursion here.
 *
 * Members are visited in the order of the object, a key before its value, and the first violation is the one
 * reported. Paths are put together on the way out of a violation, so that a valid user costs no allocation.
 */

import { LIMITS } from '../model.ts';
import { isLongerThan, isStorable } from './characters.ts';

export interface JsonObject {
  readonly [key: string]: unknown;
}

interface Violation {
  path: string;
  readonly text: string;
}

/** Longer paths are cut in the middle. */
const PATH_CHARACTERS_MAX = 1_200;

const KEY_TOO_LONG = `has a key longer than ${LIMITS.propertyKeyCharactersMax} characters`;
const TOO_DEEP = 'is nested too deeply';
const UNSTORABLE = 'contains a character that cannot be stored';

const PLAIN_KEY = /^[A-Za-z_$][A-Za-z0-9_$]*$/;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Null counts as absent. */
export function isPresent(value: unknown): boolean {
  return value !== undefined && value !== null;
}

export function isEmptyObject(object: JsonObject): boolean {
  for (const _name in object) return false;
  return true;
}

/** `.name`, or `["…"]` for a key that would not read well after a dot. Long keys are cut: this ends up in responses. */
export function pathSegment(key: string): string {
  const isLong = isLongerThan(key, LIMITS.propertyKeyCharactersMax);
  const shown = isLong ? `${key.slice(0, LIMITS.propertyKeyCharactersMax)}…` : key;
  return PLAIN_KEY.test(shown) ? `.${shown}` : `[${JSON.stringify(shown)}]`;
}

/** The first property that is nested too deeply or key that is too long; null if there is none. */
export function shapeViolation(user: JsonObject): string | null {
  const violation = shapeOf(user, USER_DEPTH);
  return violation === null ? null : violationMessage(violation);
}

const USER_DEPTH = -2;

/** 1 for a property; what has properties as members is above it, and the array of events above that. */
function depthOf(member: string): number {
  if (member === 'events') return USER_DEPTH + 1;
  return member === 'identifiers' || member === 'user_properties' ? 0 : 1;
}

function shapeOf(value: object, depth: number): Violation | null {
  if (depth > LIMITS.nestingDepthMax) return { path: '', text: TOO_DEEP };
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      const element: unknown = value[index];
      if (typeof element !== 'object' || element === null) continue;
      const violation = shapeOf(element, depth + 1);
      if (violation !== null) return shapeWithin(`[${index}]`, violation, depth);
    }
    return null;
  }
  const object = value as JsonObject;
  for (const key in object) {
    if (isLongerThan(key, LIMITS.propertyKeyCharactersMax)) return { path: '', text: KEY_TOO_LONG };
    const member = object[key];
    if (typeof member !== 'object' || member === null) continue;
    const violation = shapeOf(member, depth === USER_DEPTH ? depthOf(key) : depth + 1);
    if (violation !== null) return shapeWithin(pathSegment(key), violation, depth);
  }
  return null;
}

/** Of nesting, the whole property is at fault: 64 levels of path would not help. */
function shapeWithin(segment: string, violation: Violation, depth: number): Violation {
  return depth >= 1 && violation.text === TOO_DEEP ? violation : within(segment, violation);
}

/** The first key or string with U+0000 or a lone surrogate; null if there is none. Call after `shapeViolation`. */
export function characterViolation(user: JsonObject): string | null {
  const violation = charactersOf(user);
  return violation === null ? null : violationMessage(violation);
}

function charactersOf(value: unknown): Violation | null {
  if (typeof value === 'string') return isStorable(value) ? null : { path: '', text: UNSTORABLE };
  if (typeof value !== 'object' || value === null) return null;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      const violation = charactersOf(value[index]);
      if (violation !== null) return within(`[${index}]`, violation);
    }
    return null;
  }
  const object = value as JsonObject;
  for (const key in object) {
    if (!isStorable(key)) return { path: '', text: UNSTORABLE };
    const violation = charactersOf(object[key]);
    if (violation !== null) return within(pathSegment(key), violation);
  }
  return null;
}

function within(segment: string, violation: Violation): Violation {
  violation.path = segment + violation.path;
  return violation;
}

function violationMessage(violation: Violation): string {
  if (violation.path === '') return `user ${violation.text}`;
  const path = violation.path.startsWith('.') ? violation.path.slice(1) : `user${violation.path}`;
  return `${shortened(path)} ${violation.text}`;
}

/** A path can be nearly as long as the body; a thousand of those in one response would be as large as the body. */
function shortened(path: string): string {
  if (path.length <= PATH_CHARACTERS_MAX) return path;
  const half = PATH_CHARACTERS_MAX / 2;
  return `${path.slice(0, half).toWellFormed()}…${path.slice(-half).toWellFormed()}`;
}
