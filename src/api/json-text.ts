/**
 * JSON responses that carry values which are JSON text already. What the store kept of a client is spliced in as it is,
 * so that numbers keep their digits and keys such as `__proto__` stay keys; all else is escaped here and nowhere else.
 * Text is taken as it is only in the wrapping of `raw`, and only what the store calls `JsonText` belongs in there. This is
 * why Fastify does not serialize responses by their schemas: it would parse and print such values, and change them.
 */

import type { JsonText } from '../store.ts';

const TEXT = Symbol('JSON text');

export interface RawJson {
  readonly [TEXT]: JsonText;
}

/** Members of a Map become keys, whatever they are called; undefined members are left out. */
export type Json =
  | string
  | number
  | boolean
  | null
  | undefined
  | RawJson
  | readonly Json[]
  | ReadonlyMap<string, Json>
  | { readonly [key: string]: Json };

/** What is written as a `Value`: the value itself, or JSON text or a Map in its place. */
export type JsonOf<Value> = unknown extends Value
  ? Json
  : Value extends readonly (infer Item)[]
    ? readonly JsonOf<Item>[]
    : Value extends object
      ? RawJson | ReadonlyMap<string, JsonOf<Value[keyof Value]>> | JsonObjectOf<Value>
      : Value | (Value extends number | string ? RawJson : never);

export type JsonObjectOf<Value extends object> = {
  readonly [Key in keyof Value]: JsonOf<Value[Key]> | (object extends Pick<Value, Key> ? undefined : never);
};

export function raw(text: JsonText): RawJson {
  return { [TEXT]: text };
}

export function rawOrNull(text: JsonText | null): RawJson | null {
  return text === null ? null : raw(text);
}

export function jsonText(value: Json): JsonText {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value ?? null);
  if (isRaw(value)) return value[TEXT];
  if (isArray(value)) return `[${value.map(jsonText).join(',')}]`;
  const members: string[] = [];
  for (const [key, member] of value instanceof Map ? value : Object.entries(value)) {
    if (member !== undefined) members.push(`${JSON.stringify(key)}:${jsonText(member)}`);
  }
  return `{${members.join(',')}}`;
}

function isRaw(value: object): value is RawJson {
  return TEXT in value;
}

/** `Array.isArray` does not tell the type checker that a read-only array is one. */
function isArray(value: Json): value is readonly Json[] {
  return Array.isArray(value);
}
