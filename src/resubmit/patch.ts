/**
 * JSON Patch (RFC 6902) on rejected users, with one operation more, `to_string`: checks a patch, applies it to the JSON
 * text of a user, and says what two users differ in. Pure. Bounded: OPERATIONS_MAX operations, PATCH_CHARACTERS_MAX characters.
 *
 * The library copies values as plain data. So what is not plain is written another way while it works: numbers that a
 * double cannot hold, and members called `__proto__`. Both keep their digits and their name. A path through `__proto__`,
 * `constructor` or `prototype`, which the library skips, is refused.
 */

import { applyPatch, createPatch, type Operation, Pointer } from 'rfc6902';
import { parseExact, type RawNumber } from '../json/exact-numbers.ts';
import { IDENTIFIER_TYPES } from '../model.ts';
import type { JsonText, PatchStep } from '../store.ts';

export const OPERATIONS_MAX = 100;
const PATCH_CHARACTERS_MAX = 32_768;
const POINTER = /^(?:\/(?:[^~/]|~[01])*)+$/;
const SKIPPED_BY_LIBRARY = new Set(['__proto__', 'constructor', 'prototype']);
/** Shown on a trace; the rest is left out. */
const STEPS_MAX = 20;
const STEP_PATH_CHARACTERS_MAX = 200;

/** Beyond the RFC: a number or a boolean becomes a text, the one repair that is another value for every user. */
interface ToString {
  readonly op: 'to_string';
  readonly path: string;
}

export type Patch = readonly (Operation | ToString)[];

/** Its message is for the author of the patch. */
export class BadPatchError extends Error {
  override readonly name = 'BadPatchError';
}

/** Throws `BadPatchError`. */
export function parsePatch(text: JsonText): Patch {
  if (text.length > PATCH_CHARACTERS_MAX) {
    throw new BadPatchError(`patch must be at most ${PATCH_CHARACTERS_MAX} characters of JSON`);
  }
  return checkedPatch(parseExact(text));
}

function checkedPatch(value: unknown): Patch {
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
  return encoded(operation) as Patch[number];
}

const OPERATIONS = new Set(['add', 'remove', 'replace', 'move', 'copy', 'test', 'to_string']);

function checkPointer(pointer: unknown, where: string): void {
  if (typeof pointer !== 'string' || !POINTER.test(pointer)) {
    throw new BadPatchError(`${where} must be a JSON Pointer to a member of the user, such as /identifiers/user_id`);
  }
  const name = pointer.split('/').find((token) => SKIPPED_BY_LIBRARY.has(token));
  if (name !== undefined) throw new BadPatchError(`${where} must not lead through ${name}`);
}

/** The patched user, or why it cannot be patched so. */
export type Patched = { readonly user: JsonText } | { readonly message: string };

export function patched(user: JsonText, patch: Patch): Patched {
  const value = encoded(parseExact(user));
  // A container, so that the user itself may be something that has no members.
  if (typeof value !== 'object' || value === null)
    return { message: 'the user is no object, so it has no members to patch' };
  for (const [index, operation] of patch.entries()) {
    const problem =
      operation.op === 'to_string' ? toString(value, operation) : problemOf(applyPatch(value, [operation]));
    if (problem !== null) return { message: `patch[${index}] ${operation.op} ${operation.path}: ${problem}` };
  }
  return { user: JSON.stringify(decoded(value)) };
}

/** In our own words: those of the library quote values. */
function problemOf([problem]: ReturnType<typeof applyPatch>): string | null {
  if (problem === null || problem === undefined) return null;
  return problem.name === 'TestError' ? 'the value is another one' : 'there is nothing at this path';
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

/** What one user differs from another in. */
export function changesBetween(before: JsonText, after: JsonText): PatchStep[] {
  return stepsOf(createPatch(encoded(parseExact(before)), encoded(parseExact(after))));
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
  if (typeof value === 'string' && value.startsWith(NUMBER)) return rawNumber(value.slice(NUMBER.length));
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(decoded);
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [name === PROTO ? '__proto__' : name, decoded(member)]),
  );
}

/** `JSON.rawJSON` makes objects without a prototype. */
function isRawNumber(value: object): value is RawNumber {
  return Object.getPrototypeOf(value) === null && 'rawJSON' in value;
}

function rawNumber(source: string): unknown {
  return parseExact(source);
}
