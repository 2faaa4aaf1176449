/**
 * The JSON Patch from one user to another, for "apply to all": what was changed in one is done to each of them. A number
 * that became a text of the same digits is `to_string`, which fits every user; any other value is the same for all. Pure.
 */

import { createPatch } from 'rfc6902';
import { ExactNumber } from './exact-json.ts';

export interface PatchOperation {
  readonly op: string;
  readonly path: string;
  readonly from?: string;
  readonly value?: unknown;
}

export function patchBetween(before: unknown, after: unknown): PatchOperation[] {
  const original = encoded(before);
  return createPatch(original, encoded(after)).map((operation): PatchOperation => {
    const { op, path } = operation;
    if (op !== 'replace' && op !== 'add' && op !== 'test') {
      return 'from' in operation ? { op, path, from: operation.from } : { op, path };
    }
    const value: unknown = operation.value;
    if (op === 'replace' && isSameAsText(valueAt(original, path), value)) return { op: 'to_string', path };
    return { op, path, value: decoded(value) };
  });
}

function isSameAsText(before: unknown, after: unknown): boolean {
  if (typeof before === 'number' || typeof before === 'boolean') return after === String(before);
  return typeof before === 'string' && before.startsWith(NUMBER) && after === before.slice(NUMBER.length);
}

function valueAt(value: unknown, path: string): unknown {
  return path
    .split('/')
    .slice(1)
    .map((token) => token.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce<unknown>((at, name) => (at as Readonly<Record<string, unknown>> | null)?.[name], value);
}

/** The library compares objects by their members, and an exact number is not such an object. */
const NUMBER = '\0number:';

function encoded(value: unknown): unknown {
  if (value instanceof ExactNumber) return NUMBER + value.text;
  if (Array.isArray(value)) return value.map(encoded);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, encoded(member)]));
}

function decoded(value: unknown): unknown {
  if (typeof value === 'string' && value.startsWith(NUMBER)) return new ExactNumber(value.slice(NUMBER.length));
  if (Array.isArray(value)) return value.map(decoded);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, decoded(member)]));
}
