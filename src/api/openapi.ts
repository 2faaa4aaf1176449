/**
 * The OpenAPI 3.1 document of everything that Sluice answers, built from the same schemas that serialise the answers.
 * A pure function of its options: the same in every thread. Operations of the ingest path are written out here because
 * that path is not in Fastify; a test keeps the rest in step with the routes that are.
 */

import { ERRORS, RETRY_AFTER_SECONDS } from '../errors.ts';
import { LIMITS } from '../model.ts';
import { COMPONENT_SCHEMAS } from './component-schemas.ts';
import * as examples from './examples.ts';
import { DASHBOARD_TAG, dashboardPaths } from './openapi-dashboard.ts';
import { answer, component, errorAnswer, json, reference, shared } from './openapi-parts.ts';
import { readingPaths, READING_TAG } from './openapi-reading.ts';
import type {
  Header,
  OpenApiDocument,
  Operation,
  Parameter,
  PathItem,
  Response,
  SecurityScheme,
} from './openapi-types.ts';
import { ERROR_ROWS, LIMIT_ROWS, USER_RULES } from './reference.ts';
import * as schemas from './schemas.ts';

export interface OpenApiOptions {
  readonly version: string;
  /** Where clients reach this server, without a slash at the end; relative to the document if not known. */
  readonly serverUrl?: string;
}

export function openApiDocument(options: OpenApiOptions): OpenApiDocument {
  return {
    openapi: '3.1.1',
    info: {
      title: 'Sluice',
      version: options.version,
      summary: 'A gate that lets a flow of customer events in, fast, without losing any.',
      description:
        'Send customer events as JSON, in batches of users. A 202 means that the accepted users are on disk: they survive a crash and a power cut. When Sluice cannot promise that, it answers 503 and says when to come back. Then ask who somebody is, what they did, and why two identifiers are one person.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: options.serverUrl ?? '/', description: 'This server.' }],
    tags: [
      { name: 'Events', description: 'For applications: send events.' },
      READING_TAG,
      DASHBOARD_TAG,
      {
        name: 'Operations',
        description: 'For those who run Sluice: health, metrics and this description. No key needed.',
      },
    ],
    paths: {
      '/ingest/events': { post: ingestOperation() },
      ...readingPaths(),
      ...dashboardPaths(),
      ...operatorPaths(),
    },
    components: {
      schemas: Object.fromEntries(
        Object.entries(COMPONENT_SCHEMAS).map(([title, schema]) => [title, component(schema)]),
      ),
      responses: errorResponses(),
      headers: HEADERS,
      securitySchemes: SECURITY_SCHEMES,
    },
    'x-errors': ERROR_ROWS,
    'x-limits': LIMIT_ROWS,
    'x-user-rules': USER_RULES,
  };
}

const HEADERS: Readonly<Record<string, Header>> = {
  TraceId: {
    description: 'Names this request. On every answer, also where the body has no `trace_id`.',
    schema: { type: 'string', format: 'uuid', examples: [examples.TRACE_ID] },
  },
  RetryAfter: {
    description: 'Seconds to wait before the first retry; double it each time.',
    schema: { type: 'integer', minimum: 1, examples: [RETRY_AFTER_SECONDS] },
  },
  Allow: {
    description: 'The methods that this path has.',
    schema: { type: 'string', examples: ['GET, HEAD'] },
  },
};

const SECURITY_SCHEMES: Readonly<Record<string, SecurityScheme>> = {
  secretKey: {
    type: 'http',
    scheme: 'bearer',
    description:
      'A secret key, `sk_prod_…` or `sk_dev_…`. For servers only: it may do everything. Keep it out of browsers and apps.',
  },
  publishableKey: {
    type: 'http',
    scheme: 'bearer',
    description:
      'A publishable key, `pk_…`. Safe to show in browsers and apps: it may send events under `/ingest/` and nothing else.',
  },
  publishableKeyInQuery: {
    type: 'apiKey',
    in: 'query',
    name: 'key',
    description:
      'A publishable key in the address, for a page that is closing and cannot set headers. `Content-Type: text/plain` is taken with it, and with it alone.',
  },
  session: {
    type: 'apiKey',
    in: 'cookie',
    name: 'sluice_session',
    description: 'The cookie of a member who is signed in to the dashboard.',
  },
};

function errorResponses(): Record<string, Response> {
  return {
    ValidationFailed: answer(
      'Nothing was accepted: every user is invalid, or the payload is unusable.',
      json(
        schemas.ValidationFailed,
        ['all_invalid', 'Every user is invalid', examples.ALL_INVALID_ANSWER],
        ['unusable', 'The payload is unusable', examples.UNUSABLE_ANSWER],
      ),
    ),
    Unauthorized: answer(
      'No valid key. Do not retry with the same one.',
      json(schemas.Unauthorized, ['unauthorized', 'No valid key', { error: ERRORS.unauthorized.text }]),
    ),
    BadRequest: errorAnswer(
      'bad_request',
      schemas.BadRequest,
      'The request cannot be understood.',
      'limit must be a whole number from 1 to 500',
    ),
    Forbidden: errorAnswer(
      'forbidden',
      schemas.Forbidden,
      'The key may not be used here.',
      'publishable keys may only be used under /ingest/',
    ),
    OriginForbidden: errorAnswer('forbidden', schemas.Forbidden, 'The publishable key is not meant for this origin.'),
    NotFound: errorAnswer('not_found', schemas.NotFound, 'There is no such thing, or nothing at this path.'),
    MethodNotAllowed: errorAnswer('method_not_allowed', schemas.MethodNotAllowed, 'Not with this method.'),
    RequestTimeout: errorAnswer('request_timeout', schemas.RequestTimeout, 'The request did not arrive in time.'),
    Conflict: errorAnswer('conflict', schemas.Conflict, 'Something that is there already stands against it.'),
    PayloadTooLarge: errorAnswer('too_large', schemas.PayloadTooLarge, 'The body is too large.'),
    TooManyAttempts: errorAnswer('too_many_attempts', schemas.TooManyAttempts, 'Attempts that failed are slowed.'),
    InternalError: errorAnswer('internal', schemas.InternalError, 'A fault on our side. Nothing was promised.'),
    Unavailable: errorAnswer('unavailable', schemas.Unavailable, 'Cannot take it now. Try again, backing off.'),
  };
}

const INGEST_PARAMETERS: readonly Parameter[] = [
  {
    name: 'Idempotency-Key',
    in: 'header',
    required: false,
    description:
      'Your own name for this request, so that a retry is safe: a second request with the same key and the same body (byte for byte, after decompression) within 24 hours gets 202 and is not stored again, and its trace says `duplicate_of`. With another body it is not a retry: it is stored, and its trace carries a warning.',
    schema: { type: 'string', minLength: 1, maxLength: LIMITS.idempotencyKeyCharactersMax },
  },
  {
    name: 'Content-Encoding',
    in: 'header',
    required: false,
    description: 'How the body is compressed, if it is. The size limit holds after decompression too.',
    schema: { type: 'string', enum: ['gzip', 'deflate', 'br', 'zstd', 'identity'] },
  },
];

function ingestOperation(): Operation {
  const [whole, wholeSummary] = ['valid', 'One user, one event'] as const;
  const [partly, partlySummary] = ['partly_valid', 'One valid user, and one without an identifier'] as const;
  return {
    operationId: 'ingestEvents',
    tags: ['Events'],
    summary: 'Send users and their events',
    description: [
      'Each user is judged independently: valid users are accepted even when others in the same request fail. The 202 is sent only once the accepted users are durable. **Look at `users_rejected` and `errors` on every 202.**',
      '**Retrying.** On 503 and 408, and when no answer came, send the same request again with exponential backoff, starting from `Retry-After`. With an `Idempotency-Key`, a repeat within 24 hours counts once. The same key with another body is not a retry: it is stored, with a warning on its trace. Any other answer would be the same the next time.',
      '**From a browser.** CORS is open here, without credentials, for publishable keys; a key may be limited to certain origins. A page that is closing cannot preflight: let it send the same JSON as `text/plain` to `/ingest/events?key=pk_…`, with `navigator.sendBeacon` for example.',
    ].join('\n\n'),
    security: [{ secretKey: [] }, { publishableKey: [] }, { publishableKeyInQuery: [] }],
    parameters: INGEST_PARAMETERS,
    requestBody: {
      required: true,
      description: 'UTF-8 JSON, at most 10 MB. `null` for an optional field counts as absent.',
      content: {
        ...json(
          schemas.IngestRequest,
          [whole, wholeSummary, examples.SMALL_REQUEST],
          [partly, partlySummary, examples.PARTLY_VALID_REQUEST],
        ),
        'text/plain': {
          schema: {
            type: 'string',
            contentMediaType: 'application/json',
            contentSchema: reference(schemas.IngestRequest),
            description: 'The same JSON; only with a publishable key in the query.',
          },
        },
      },
    },
    responses: {
      202: answer(
        'At least one user was accepted, and is durable.',
        json(
          schemas.IngestAccepted,
          [whole, wholeSummary, examples.SMALL_ANSWER],
          [partly, partlySummary, examples.PARTLY_VALID_ANSWER],
        ),
      ),
      400: shared('ValidationFailed'),
      401: shared('Unauthorized'),
      403: shared('OriginForbidden'),
      408: shared('RequestTimeout'),
      413: shared('PayloadTooLarge'),
      503: shared('Unavailable'),
    },
  };
}

function operatorOperation(
  operationId: string,
  summary: string,
  description: string,
  responses: Record<string, Response>,
): PathItem {
  const errors = { 403: shared('Forbidden'), 500: shared('InternalError') };
  return {
    get: {
      operationId,
      tags: ['Operations'],
      summary,
      description,
      security: [],
      responses: { ...responses, ...errors },
    },
  };
}

function operatorPaths(): Record<string, PathItem> {
  const alive = answer('Alive.', json(schemas.Alive, ['alive', 'Alive', { status: 'alive' }]));
  const ready = answer('Ready.', json(schemas.Ready, ['ready', 'Ready', { status: 'ready' }]));
  const reasons = ['less than 256 MB of disk are free'];
  const notReady = answer(
    'Not now.',
    json(schemas.NotReady, ['not_ready', 'Not ready', { status: 'not ready', reasons }]),
    ['Retry-After'],
  );
  const metrics = answer('Prometheus text, format 0.0.4.', { 'text/plain': { schema: { type: 'string' } } });
  const version = answer(
    'What runs here.',
    json(schemas.Version, ['version', 'Version', { version: '1.2.3', role: 'all' }]),
  );
  const document = answer('An OpenAPI 3.1 document.', { 'application/json': { schema: { type: 'object' } } });
  const page = answer('An HTML page.', { 'text/html': { schema: { type: 'string' } } });
  return {
    '/livez': operatorOperation('livez', 'Is the process alive?', 'Restart the process when this stops answering.', {
      200: alive,
    }),
    '/readyz': operatorOperation(
      'readyz',
      'Is it ready for its work?',
      'Send traffic only while this is 200. It is 503 while events cannot be accepted (the disk is full, nearly full or failing; Kafka cannot be reached), for the roles `processor` and `api` while PostgreSQL cannot be reached, for every role until PostgreSQL was first reached, and from the moment a shutdown begins: requests are served for `SLUICE_DRAIN` more.',
      { 200: ready, 503: notReady },
    ),
    '/metrics': operatorOperation(
      'metrics',
      'Metrics for Prometheus',
      'All threads of this process, summed. Labels never name a tenant, a key or anything that a client chose.',
      {
        200: metrics,
      },
    ),
    '/version': operatorOperation('version', 'Which version is this?', 'And which role it has.', { 200: version }),
    '/openapi.json': operatorOperation('openapi', 'This description', 'OpenAPI 3.1, for tools.', { 200: document }),
    '/docs': operatorOperation('docs', 'This description, for people', 'One page, without scripts.', { 200: page }),
  };
}
