/**
 * The responses of everything behind Fastify, as text. `jsonText` writes values which are JSON text already as they are:
 * what the store kept of a client is spliced in, so that numbers keep their digits and keys such as `__proto__` stay keys;
 * all else is escaped here and nowhere else. Text is taken as it is only in the wrapping of `raw`, and only what the store
 * calls `JsonText` belongs in there. This is why Fastify does not serialise responses by their schemas: it would parse and
 * print such values, and change them.
 *
 * Status, words of an error and whether to retry come from the table in `errors.ts`; of exceptions, only the message of a
 * `RefusedError` gets into a body, because it was written for the client.
 */

import type { FastifyReply } from 'fastify';
import type { Static, TObject, TProperties, TSchema } from 'typebox';
import { ERRORS, type ErrorCode, RETRY_AFTER_SECONDS } from '../errors.ts';
import type { IdentifierType } from '../model.ts';
import type { JsonText } from '../store.ts';
import type { JsonSchema } from './openapi-types.ts';

export class RefusedError extends Error {
  override readonly name: string = 'RefusedError';
  readonly code: ErrorCode;
  /** As the table of errors says unless given. */
  readonly retryAfterSeconds: number | null;

  constructor(code: ErrorCode, message = '', retryAfterSeconds: number | null = null) {
    super(message);
    this.code = code;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** The message names the parameter or field, and says what is expected. */
export class BadParameterError extends RefusedError {
  override readonly name = 'BadParameterError';

  constructor(message: string) {
    super('bad_request', message);
  }
}

export function sendError(reply: FastifyReply, code: ErrorCode, message?: string): FastifyReply {
  const { status, text, retryable } = ERRORS[code];
  // A route that knows better how long it takes has set it.
  if (retryable && !reply.hasHeader('retry-after')) reply.header('retry-after', RETRY_AFTER_SECONDS);
  return sendJson(reply, status, { error: text, trace_id: reply.request.id, message });
}

/** Without a key, a client learns nothing more. */
export function sendUnauthorized(reply: FastifyReply): FastifyReply {
  return sendJson(reply, ERRORS.unauthorized.status, { error: ERRORS.unauthorized.text });
}

/** For data of a tenant, and errors about it: no proxy may keep it. */
export function sendJson(reply: FastifyReply, status: number, body: Json): FastifyReply {
  reply.header('cache-control', 'no-store').code(status).type('application/json; charset=utf-8');
  return reply.serializer(String).send(jsonText(body));
}

const TEXT = Symbol('JSON text');

interface RawJson {
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

type JsonObjectOf<Value extends object> = {
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

export type TimeText = `${string}Z`;

export function timeText(milliseconds: number): TimeText {
  return new Date(milliseconds).toISOString() as TimeText;
}

type CamelCase<Name> = Name extends `${infer First}_${infer Rest}` ? `${First}${Capitalize<CamelCase<Rest>>}` : Name;

/** What a value of a response is made of: times are in milliseconds. */
type RowOf<Value> = unknown extends Value
  ? Json
  : Value extends TimeText
    ? number
    : Value extends readonly (infer Item)[]
      ? readonly RowOf<Item>[]
      : Value extends object
        ? { readonly [Key in keyof Value as NameInRow<Key>]: RowOf<Value[Key]> | OrAbsent<Value, Key> }
        : Value | (Value extends number | string ? RawJson : never);

type NameInRow<Name> = Name extends IdentifierType ? Name : CamelCase<Name>;

type OrAbsent<Value, Key extends keyof Value> = object extends Pick<Value, Key> ? undefined : never;

/**
 * Makes a response of a row of the stores, by the schema of the response: the fields that it names and no others, each
 * taken from the row under its name in camel case (identifiers under their own), with times in UTC. The compiler checks
 * that the row has all of them. A field that may be absent is left out where the row has none.
 */
export function rowJson<Fields extends TProperties>(
  schema: TObject<Fields>,
  row: RowOf<Static<TObject<Fields>>>,
): JsonObjectOf<Static<TObject<Fields>>> {
  return valueJson(schema as TSchema as JsonSchema, row) as JsonObjectOf<Static<TObject<Fields>>>;
}

function valueJson({ anyOf, format, items, properties }: JsonSchema, value: unknown): unknown {
  if (value === null || value === undefined) return value;
  // A type or null: the type comes first.
  if (anyOf?.[0] !== undefined) return valueJson(anyOf[0], value);
  if (format === 'date-time') return timeText(value as number);
  if (items !== undefined) return (value as readonly unknown[]).map((item) => valueJson(items, item));
  if (properties === undefined) return value;
  const row = value as Readonly<Record<string, unknown>>;
  const members = Object.entries(properties).map(([name, field]) => [
    name,
    valueJson(field, row[Object.hasOwn(row, name) ? name : camelCase(name)]),
  ]);
  return Object.fromEntries(members.filter(([, member]) => member !== undefined));
}

function camelCase(name: string): string {
  return name.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}
