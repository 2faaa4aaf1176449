/**
 * JSON Patch (RFC 6902) for rejected users, with one extra operation, `to_string`: checks a patch, applies it to the
 * JSON text of a user, and lists the differences between two users. Pure. A patch is bounded by OPERATIONS_MAX and
 * PATCH_CHARACTERS_MAX, and what it makes of a user by COPIED_CHARACTERS_MAX besides.
 *
 * Written by hand: the libraries for it also follow names that a value inherits, and would change the built-in objects of
 * this process. Here a name is a member of the value itself or nothing, and numbers keep all digits.
 */

import { isDeepStrictEqual } from 'node:util';
import { isRawNumber, parseExact } from '../json/exact-numbers.ts';
import { IDENTIFIER_TYPES } from '../model.ts';
import type { JsonText, PatchStep } from '../store.ts';

const OPERATIONS_MAX = 100;
const PATCH_CHARACTERS_MAX = 32_768;
/** Limit of the JSON that one patch copies in one user: `copy` could double a user with every operation. */
const COPIED_CHARACTERS_MAX = 65_536;
/** Deeper values would make of any user one that is nested too deeply. */
const VALUE_LEVELS_MAX = 100;
const POINTER = /^(?:\/(?:[^~/]|~[01])*)+$/;
/** Of an item of a list. */
const INDEX = /^(?:0|[1-9]\d*)$/;
const STEPS_MAX = 20;
const STEP_PATH_CHARACTERS_MAX = 200;

interface PatchOperation {
  /** `to_string` is beyond the RFC: it converts a number or boolean to a string, which differs from user to user. */
  readonly op: 'add' | 'remove' | 'replace' | 'move' | 'copy' | 'test' | 'to_string';
  readonly path: string;
  /** Of `move` and `copy`. */
  readonly from?: string;
  /** Of `add`, `replace` and `test`. */
  readonly value?: unknown;
}

export type Patch = readonly PatchOperation[];

export class BadPatchError extends Error {
  override readonly name = 'BadPatchError';
}

export function parsePatch(text: JsonText): Patch {
  if (text.length > PATCH_CHARACTERS_MAX) {
    throw new BadPatchError(`patch must be at most ${PATCH_CHARACTERS_MAX} characters of JSON`);
  }
  const value = parseExact(text);
  if (!Array.isArray(value)) throw new BadPatchError('patch must be an array of operations (JSON Patch, RFC 6902)');
  if (value.length === 0) throw new BadPatchError('patch must have at least one operation');
  if (value.length > OPERATIONS_MAX) throw new BadPatchError(`patch must have at most ${OPERATIONS_MAX} operations`);
  return value.map((operation: unknown, index) => checkedOperation(operation, `patch[${index}]`));
}

function checkedOperation(operation: unknown, where: string): PatchOperation {
  if (typeof operation !== 'object' || operation === null || Array.isArray(operation)) {
    throw new BadPatchError(`${where} must be an object with op and path`);
  }
  const { op, path, from } = operation as Readonly<Record<string, unknown>>;
  if (typeof op !== 'string' || !OPERATIONS.has(op)) {
    throw new BadPatchError(`${where}.op must be add, remove, replace, move, copy, test or to_string`);
  }
  checkPointer(path, `${where}.path`);
  if (op === 'move' || op === 'copy') checkPointer(from, `${where}.from`);
  if ((op === 'add' || op === 'replace' || op === 'test') && !Object.hasOwn(operation, 'value')) {
    throw new BadPatchError(`${where}.value is required for ${op}`);
  }
  if (isDeeperThan(operation, VALUE_LEVELS_MAX)) {
    throw new BadPatchError(`${where}.value is nested too deeply, at most ${VALUE_LEVELS_MAX} levels`);
  }
  return operation as PatchOperation;
}

function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels < 0 || Object.values(value).some((member) => isDeeperThan(member, levels - 1));
}

const OPERATIONS = new Set(['add', 'remove', 'replace', 'move', 'copy', 'test', 'to_string']);

function checkPointer(pointer: unknown, where: string): void {
  if (typeof pointer !== 'string' || !POINTER.test(pointer)) {
    throw new BadPatchError(`${where} must be a JSON Pointer to a member of the user, such as /identifiers/user_id`);
  }
}

type Patched = { readonly user: JsonText } | { readonly message: string };

export function patched(user: JsonText, patch: Patch): Patched {
  try {
    return applyAll(user, patch);
  } catch (error) {
    // Rejected users may be nested to any depth, and this code is recursive.
    if (error instanceof RangeError) return { message: 'the user is nested too deeply to be patched' };
    throw error;
  }
}

function applyAll(user: JsonText, patch: Patch): Patched {
  const value = parseExact(user);
  if (!isParent(value)) return { message: 'the user is not an object, so it has no members to patch' };
  let copied = 0;
  for (const [index, operation] of patch.entries()) {
    if (operation.op === 'copy') copied += (JSON.stringify(valueAt(value, operation.from)) ?? '').length;
    const problem = copied > COPIED_CHARACTERS_MAX ? 'the user becomes too large' : applied(value, operation);
    if (problem !== null) return { message: `patch[${index}] ${operation.op} ${operation.path}: ${problem}` };
  }
  return { user: JSON.stringify(value) };
}

type Parent = unknown[] | Record<string, unknown>;

/** Where a path leads: a member, or item, of a value that exists. It may be absent itself. */
interface Place {
  readonly parent: Parent;
  readonly key: string;
}

const NOTHING_THERE = 'there is nothing at this path';

/** Null if it applies; otherwise why not, without values. */
function applied(user: Parent, { op, path, from, value }: PatchOperation): string | null {
  const found = valueAt(user, path);
  const place = placeOf(user, path);
  switch (op) {
    case 'test':
      return isDeepStrictEqual(found, value) ? null : 'the value differs';
    case 'add':
      return add(place, copyOf(value));
    case 'copy':
    case 'move': {
      const source = valueAt(user, from);
      if (source === undefined) return NOTHING_THERE;
      if (op === 'copy') return add(place, copyOf(source));
      remove(placeOf(user, from));
      // Searched again: what was removed may have been in the path, or before it in a list.
      return add(placeOf(user, path), source);
    }
    case 'remove':
    case 'replace':
      if (found === undefined) return NOTHING_THERE;
      if (op === 'remove') remove(place);
      else set(place, copyOf(value));
      return null;
    case 'to_string':
  }
  return toString(place, isRawNumber(found) ? found.rawJSON : found);
}

function toString(place: Place | undefined, value: unknown): string | null {
  if (typeof value !== 'string' && typeof value !== 'number' && typeof value !== 'boolean')
    return 'there is no number, boolean or text at this path';
  set(place, String(value));
  return null;
}

/** Undefined if there is nothing, which no JSON value is. */
function valueAt(user: Parent, path = ''): unknown {
  const place = placeOf(user, path);
  return place && childOf(place.parent, place.key);
}

function placeOf(user: Parent, path = ''): Place | undefined {
  const names = path.split('/').slice(1).map(unescaped);
  const key = names.pop();
  let parent: unknown = user;
  for (const name of names) parent = isParent(parent) ? childOf(parent, name) : undefined;
  return key !== undefined && isParent(parent) ? { parent, key } : undefined;
}

function childOf(parent: Parent, key: string): unknown {
  if (Array.isArray(parent)) return INDEX.test(key) ? parent[Number(key)] : undefined;
  return Object.hasOwn(parent, key) ? parent[key] : undefined;
}

function isParent(value: unknown): value is Parent {
  return typeof value === 'object' && value !== null && !isRawNumber(value);
}

function add(place: Place | undefined, value: unknown): string | null {
  if (place === undefined) return NOTHING_THERE;
  const { parent, key } = place;
  if (!Array.isArray(parent)) set(place, value);
  else if (key === '-') parent.push(value);
  else if (INDEX.test(key) && Number(key) <= parent.length) parent.splice(Number(key), 0, value);
  else return NOTHING_THERE;
  return null;
}

function set(place: Place | undefined, value: unknown): void {
  if (place === undefined) return;
  // Not an assignment: `__proto__` is a name as any other.
  Object.defineProperty(place.parent, place.key, { value, writable: true, enumerable: true, configurable: true });
}

function remove(place: Place | undefined): void {
  if (place === undefined) return;
  const { parent, key } = place;
  if (Array.isArray(parent)) parent.splice(Number(key), 1);
  else Reflect.deleteProperty(parent, key);
}

/** Later operations must not change the patch, or a value in two places. */
function copyOf(value: unknown): unknown {
  if (!isParent(value)) return value;
  if (Array.isArray(value)) return value.map(copyOf);
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, copyOf(member)]));
}

/** Identifiers that a patch sets to one value: all users that it is applied to would become one person. */
export function sharedIdentifiers(patch: Patch): string[] {
  return patch.flatMap((operation) => {
    if (operation.op !== 'add' && operation.op !== 'replace') return [];
    const { path, value } = operation;
    if (typeof value === 'string') return IDENTIFIER_PATHS.has(path) ? [path] : [];
    const isWhole = path === '/identifiers' && typeof value === 'object' && value !== null;
    return isWhole
      ? Object.keys(value)
          .map((name) => `${path}/${name}`)
          .filter((name) => IDENTIFIER_PATHS.has(name))
      : [];
  });
}

const IDENTIFIER_PATHS = new Set([
  ...IDENTIFIER_TYPES.map((type) => `/identifiers/${type}`),
  ...['/userId', '/anonymousId'],
]);

/** What was changed, without values: these may be personal data. */
export function stepsOf(patch: Patch): PatchStep[] {
  return patch.slice(0, STEPS_MAX).map((operation) => {
    const { op, from } = operation;
    const path = operation.path.slice(0, STEP_PATH_CHARACTERS_MAX);
    const isMoved = from !== undefined && (op === 'move' || op === 'copy');
    return isMoved ? { op, path, from: from.slice(0, STEP_PATH_CHARACTERS_MAX) } : { op, path };
  });
}

export function changesBetween(before: JsonText, after: JsonText): PatchStep[] {
  const steps: PatchStep[] = [];
  noteChanges(parseExact(before), parseExact(after), '', steps);
  return steps;
}

/** Lists count as one value: which of their items changed is not worth comparing all with all. */
function noteChanges(before: unknown, after: unknown, path: string, steps: PatchStep[]): void {
  if (steps.length >= STEPS_MAX || isDeepStrictEqual(before, after)) return;
  if (!isMembers(before) || !isMembers(after)) {
    steps.push({ op: 'replace', path: path.slice(0, STEP_PATH_CHARACTERS_MAX) });
    return;
  }
  const note = (op: 'add' | 'remove', name: string): void => {
    if (steps.length < STEPS_MAX)
      steps.push({ op, path: `${path}/${escaped(name)}`.slice(0, STEP_PATH_CHARACTERS_MAX) });
  };
  for (const name of Object.keys(before)) if (!Object.hasOwn(after, name)) note('remove', name);
  for (const name of Object.keys(after)) if (!Object.hasOwn(before, name)) note('add', name);
  for (const [name, value] of Object.entries(after)) {
    if (Object.hasOwn(before, name)) noteChanges(before[name], value, `${path}/${escaped(name)}`, steps);
  }
}

function isMembers(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !isRawNumber(value);
}

function escaped(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}

function unescaped(name: string): string {
  return name.replaceAll('~1', '/').replaceAll('~0', '~');
}
