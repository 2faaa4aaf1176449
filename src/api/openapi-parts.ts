/**
 * What the operations of the OpenAPI document are put together from: references instead of copies of what has a name,
 * answers with their headers and examples, errors by the table in `errors.ts`.
 */

import type { TSchema } from 'typebox';
import { ERRORS, type ErrorCode } from '../errors.ts';
import { COMPONENT_SCHEMAS } from './component-schemas.ts';
import * as examples from './examples.ts';
import type { JsonSchema, MediaType, Reference, Response } from './openapi-types.ts';

/** Replaces what has a component's title by a reference to it, all the way down. */
function withReferences(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withReferences);
  if (typeof value !== 'object' || value === null) return value;
  if ('title' in value && typeof value.title === 'string' && Object.hasOwn(COMPONENT_SCHEMAS, value.title)) {
    return { $ref: `#/components/schemas/${value.title}` };
  }
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, withReferences(inner)]));
}

export function reference(schema: TSchema): JsonSchema {
  return withReferences(schema) as JsonSchema;
}

export function component(schema: TSchema): JsonSchema {
  return Object.fromEntries(Object.entries(schema).map(([key, inner]) => [key, withReferences(inner)]));
}

export function json(
  schema: TSchema,
  ...named: [name: string, summary: string, value: unknown][]
): Record<string, MediaType> {
  const entries = named.map(([name, summary, value]) => [name, { summary, value }] as const);
  return { 'application/json': { schema: reference(schema), examples: Object.fromEntries(entries) } };
}

export function answer(description: string, content: Record<string, MediaType>, headers: string[] = []): Response {
  const all: [string, Reference][] = [['X-Trace-Id', { $ref: '#/components/headers/TraceId' }]];
  if (headers.includes('Retry-After')) all.push(['Retry-After', { $ref: '#/components/headers/RetryAfter' }]);
  if (headers.includes('Allow')) all.push(['Allow', { $ref: '#/components/headers/Allow' }]);
  return { description, headers: Object.fromEntries(all), content };
}

export function errorAnswer(code: ErrorCode, schema: TSchema, description: string, message?: string): Response {
  const { text, retryable } = ERRORS[code];
  const body = { error: text, trace_id: examples.TRACE_ID, ...(message === undefined ? {} : { message }) };
  const headers = [...(retryable ? ['Retry-After'] : []), ...(code === 'method_not_allowed' ? ['Allow'] : [])];
  return answer(description, json(schema, [code, description, body]), headers);
}

export function shared(name: string): Reference {
  return { $ref: `#/components/responses/${name}` };
}
