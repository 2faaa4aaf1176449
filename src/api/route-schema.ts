/**
 * What every route declares about itself, next to its handler: its purpose, its parameters and its responses. The
 * compiler checks responses against it, `parameters.ts` reads requests by it, and `/openapi.json` is generated from it
 * (`openapi-document.ts`). Errors that all routes of a kind share are added here, by kind.
 */

import type { FastifySchema } from 'fastify';
import type { TSchema } from 'typebox';
import { type Json, jsonText } from './responses.ts';
import type { JsonSchema, MediaType, Response } from './openapi-types.ts';
import type { ParameterKinds } from './parameters.ts';

export interface JsonResponse<Body extends TSchema = TSchema> {
  readonly status?: number;
  readonly description: string;
  readonly body: Body;
  /** By name: a summary and the response. A test checks them against the schema. */
  readonly examples?: Examples;
}

export type Examples = Readonly<Record<string, readonly [summary: string, value: unknown]>>;

export const NO_CONTENT = { status: 204, description: 'Done. The response has no body.' } as const;

export interface RouteSchema {
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  readonly params?: Readonly<Record<string, TSchema>>;
  readonly query?: ParameterKinds;
  readonly headers?: Readonly<Record<string, TSchema>>;
  readonly body?: TSchema;
  readonly response: RouteResponse | readonly RouteResponse[];
  /** Besides those of all routes of its kind. */
  readonly errors?: readonly ErrorStatus[];
}

type RouteResponse = JsonResponse | typeof NO_CONTENT | OtherResponse;

/** Anything but JSON of one shape, as the OpenAPI document has it. */
interface OtherResponse {
  readonly description: string;
  readonly content: Readonly<Record<string, object>>;
}

/** As the documentation names it: `GET /profiles/:id`. */
export type RouteName = `${'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'} /${string}`;

export interface RouteKind {
  readonly tag: string;
  readonly security: readonly Readonly<Record<string, readonly string[]>>[];
  readonly errors: readonly ErrorStatus[];
}

/** The shared responses of the OpenAPI document, by status. */
const ERROR_RESPONSES = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  409: 'Conflict',
  413: 'PayloadTooLarge',
  429: 'TooManyAttempts',
  500: 'InternalError',
  503: 'Unavailable',
} as const;

type ErrorStatus = keyof typeof ERROR_RESPONSES;

/**
 * The options of a Fastify route. Neither Ajv nor fast-json-stringify has a part in it: requests are refused in our own
 * words by `parameters.ts`, and responses carry JSON text that must not be parsed (`responses.ts`).
 */
export function routeOptions(name: RouteName, schema: RouteSchema, kind: RouteKind) {
  const [method = '', url = ''] = name.split(' ');
  return {
    method,
    url,
    schema: fastifySchema(schema, kind),
    validatorCompiler: () => () => true,
    serializerCompiler: () => (body: unknown) => jsonText(body as Json),
  };
}

function fastifySchema(schema: RouteSchema, kind: RouteKind): FastifySchema {
  const { operationId, summary, description, params, query, headers, body, response } = schema;
  const statuses = [...kind.errors, ...(schema.errors ?? [])];
  if (params !== undefined) statuses.push(404);
  if (body !== undefined) statuses.push(400, 413);
  const errors = statuses.map((status) => [status, { $ref: `#/components/responses/${ERROR_RESPONSES[status]}` }]);
  return {
    operationId,
    summary,
    description,
    tags: [kind.tag],
    security: kind.security,
    ...(params !== undefined && { params: { type: 'object', properties: params, required: Object.keys(params) } }),
    ...(query !== undefined && { querystring: querySchema(query) }),
    ...(headers !== undefined && { headers: { type: 'object', properties: headers } }),
    ...(body !== undefined && { body: { description: 'JSON.', ...body } }),
    response: Object.fromEntries([...errors, ...[response].flat().map(responseSchema)]),
  };
}

export function querySchema(kinds: ParameterKinds) {
  const properties = Object.entries(kinds).map(([name, { schema, description }]) => [name, { ...schema, description }]);
  return { type: 'object', properties: Object.fromEntries(properties) };
}

function responseSchema(response: RouteResponse): [status: number, schema: object] {
  if ('content' in response) return [200, response];
  const { status = 200, description } = response;
  if (!('body' in response)) return [status, { type: 'null', description }];
  return [status, { description, content: jsonContent(response.body, response.examples) }];
}

export function responseHeaders(isRetryable = false): Response['headers'] {
  return {
    'X-Trace-Id': { $ref: '#/components/headers/TraceId' },
    ...(isRetryable && { 'Retry-After': { $ref: '#/components/headers/RetryAfter' } }),
  };
}

export function jsonResponse(description: string, body: TSchema, examples: Examples, isRetryable = false): Response {
  return { description, headers: responseHeaders(isRetryable), content: jsonContent(body, examples) };
}

export function jsonContent(body: TSchema, examples?: Examples): Readonly<Record<string, MediaType>> {
  const schema = body as JsonSchema;
  return { 'application/json': examples === undefined ? { schema } : { schema, examples: namedExamples(examples) } };
}

export function namedExamples(examples: Examples): Record<string, { summary: string; value: unknown }> {
  return Object.fromEntries(Object.entries(examples).map(([name, [summary, value]]) => [name, { summary, value }]));
}
