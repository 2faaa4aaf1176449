/**
 * JSON Patch (RFC 6902) for rejected users, with one extra operation, `to_string`: checks a patch, applies it to the
 * JSON text of a user, and lists the differences between two users. Pure. A patch is bounded by OPERATIONS_MAX and
 * PATCH_CHARACTERS_MAX, and what it makes of a user by COPIED_CHARACTERS_MAX besides.
 *
 * The library copies values as plain data, so values that are not plain are encoded while it runs: numbers that a
 * double cannot represent, and members named `__proto__`. Digits and names are restored afterwards. A path through
 * `__proto__`, `constructor` or `prototype`, which the library skips, is refused.
 */

import { isDeepStrictEqual } from 'node:util';
import { applyPatch, type Operation, Pointer } from 'rfc6902';
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
const SKIPPED_BY_LIBRARY = new Set(['__proto__', 'constructor', 'prototype']);
const STEPS_MAX = 20;
const STEP_PATH_CHARACTERS_MAX = 200;

/** Beyond the RFC: converts a number or boolean to a string, a fix whose result differs from user to user. */
interface ToString {
  readonly op: 'to_string';
  readonly path: string;
}

export type Patch = readonly (Operation | ToString)[];

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

function checkedOperation(operation: unknown, where: string): Patch[number] {
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
  return encoded(operation) as Patch[number];
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
  const name = pointer.split('/').find((token) => SKIPPED_BY_LIBRARY.has(token));
  if (name !== undefined) throw new BadPatchError(`${where} must not lead through ${name}`);
}

type Patched = { readonly user: JsonText } | { readonly message: string };

export function patched(user: JsonText, patch: Patch): Patched {
  try {
    return applyAll(user, patch);
  } catch (error) {
    // Rejected users may be nested to any depth, and this code and the library are recursive.
    if (error instanceof RangeError) return { message: 'the user is nested too deeply to be patched' };
    throw error;
  }
}

function applyAll(user: JsonText, patch: Patch): Patched {
  const value = encoded(parseExact(user));
  if (typeof value !== 'object' || value === null)
    return { message: 'the user is not an object, so it has no members to patch' };
  let copied = 0;
  for (const [index, operation] of patch.entries()) {
    if (operation.op === 'copy') copied += charactersAt(value, operation.from);
    const problem = copied > COPIED_CHARACTERS_MAX ? 'the user becomes too large' : applied(value, operation);
    if (problem !== null) return { message: `patch[${index}] ${operation.op} ${operation.path}: ${problem}` };
  }
  return { user: JSON.stringify(decoded(value)) };
}

function applied(user: object, operation: Patch[number]): string | null {
  if (operation.op === 'to_string') return toString(user, operation);
  // The library compares two lists by a table of all pairs of their items.
  if (operation.op === 'test') {
    const { value } = Pointer.fromJSON(operation.path).evaluate(user);
    return isDeepStrictEqual(value, operation.value) ? null : 'the value differs';
  }
  // In our own words: those of the library quote values.
  return (applyPatch(user, [operation])[0] ?? null) === null ? null : 'there is nothing at this path';
}

function charactersAt(user: object, path: string): number {
  const { value } = Pointer.fromJSON(path).evaluate(user) as { readonly value: unknown };
  return value === undefined ? 0 : JSON.stringify(value).length;
}

function toString(user: object, { path }: ToString): string | null {
  const { parent, key, value } = Pointer.fromJSON(path).evaluate(user) as {
    readonly parent: Record<string, unknown>;
    readonly key: string;
    readonly value: unknown;
  };
  if (typeof value === 'number' || typeof value === 'boolean') parent[key] = String(value);
  else if (typeof value === 'string') parent[key] = value.startsWith(NUMBER) ? value.slice(NUMBER.length) : value;
  else return 'there is no number, boolean or text at this path';
  return null;
}

/** Identifiers that a patch sets to one value: all users that it is applied to would become one person. */
export function sharedIdentifiers(patch: Patch): string[] {
  return patch.flatMap((operation) => {
    if (operation.op !== 'add' && operation.op !== 'replace') return [];
    const { path, value } = operation as { readonly path: string; readonly value: unknown };
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
    const { op } = operation;
    const path = operation.path.slice(0, STEP_PATH_CHARACTERS_MAX);
    return 'from' in operation ? { op, path, from: operation.from.slice(0, STEP_PATH_CHARACTERS_MAX) } : { op, path };
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

const NUMBER = '\0number:';
const PROTO = '\0__proto__';

function encoded(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(encoded);
  if (isRawNumber(value)) return NUMBER + value.rawJSON;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [name === '__proto__' ? PROTO : name, encoded(member)]),
  );
}

function decoded(value: unknown): unknown {
  if (typeof value === 'string' && value.startsWith(NUMBER)) return parseExact(value.slice(NUMBER.length));
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(decoded);
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [name === PROTO ? '__proto__' : name, decoded(member)]),
  );
}
