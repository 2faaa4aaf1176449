/**
 * The routes for the SDKs of Segment and RudderStack, for the OpenAPI document, by hand: they are not in Fastify
 * (`edge/segment-intake.ts`). What these SDKs send and load is a protocol of their own: here it is any object, and
 * `docs/segment.md` says what is read of it. Responses are ours, and described in full.
 */

import { rudderSettings, segmentSettings } from '../edge/segment-intake.ts';
import { ERRORS } from '../errors.ts';
import { MESSAGES_PER_REQUEST_MAX } from '../intake/segment.ts';
import { MESSAGE_TYPES } from '../intake/segment-message.ts';
import { LIMITS } from '../model.ts';
import { AT, TRACE_ID } from './examples.ts';
import { type Operation, parameter, type PathItem, type Response } from './openapi-types.ts';
import { traceId } from './reference.ts';
import { jsonContent, jsonResponse } from './route-schema.ts';
import { count, list, object, text, Type } from './schema.ts';

const OPEN = { additionalProperties: true };
const MESSAGE = Type.Object({}, { ...OPEN, description: 'One call of an SDK (docs/segment.md).' });
const BATCH = Type.Object(
  {
    batch: Type.Array(MESSAGE, {
      minItems: 1,
      maxItems: MESSAGES_PER_REQUEST_MAX,
      description: 'Calls of an SDK, in order, each with its `type` (docs/segment.md).',
    }),
  },
  OPEN,
);
const SETTINGS = Type.Object({}, { ...OPEN, description: 'What an SDK loads before it sends.' });

const MessageError = object('SegmentMessageError', 'Why one message was rejected.', {
  index: count('Position of the message in `batch`, counted from 0.'),
  message: text('The first rule that the message breaks.'),
});
const errors = list(MessageError, 'One entry per rejected message, in order of `index`.');

const SegmentAccepted = object('SegmentAccepted', 'At least one message was accepted, and is durable.', {
  success: Type.Literal(true),
  trace_id: traceId,
  accepted: count('Messages that are valid, and durable.'),
  rejected: count('Messages that are not valid. They are kept with the reason (`GET /rejections`).'),
  errors,
});

const SegmentFailure = object('SegmentFailure', 'Nothing was accepted.', {
  success: Type.Literal(false),
  error: text('The status in words.'),
  code: text('The kind of error, for programs.'),
  message: text('What is wrong and where, for a person.'),
  trace_id: traceId,
  accepted: Type.Optional(count('0, where every message is invalid.')),
  rejected: Type.Optional(count('All messages, where every message is invalid.')),
  errors: Type.Optional(errors),
});

const SegmentDiscarded = object('SegmentDiscarded', 'Received, and not kept.', { success: Type.Literal(true) });

type FailureCode = 'validation_failed' | 'unauthorized' | 'forbidden' | 'too_large' | 'overloaded';

function failure(code: FailureCode, description: string, message: string): Response {
  const { text: error, retryable } = ERRORS[code];
  const example = { success: false, error, code, message, trace_id: TRACE_ID };
  return jsonResponse(description, SegmentFailure, { [code]: [error, example] }, retryable);
}

const KEY_FAILURES = {
  401: failure('unauthorized', 'No valid key.', 'no valid key'),
  403: failure(
    'forbidden',
    'The key may not be used from this origin.',
    'this key may not be used from https://a.example',
  ),
  429: failure(
    'overloaded',
    'Temporarily unavailable, or the key is over its rate limit (then `code` is `rate_limited`): retry after `Retry-After` seconds.',
    'nothing was stored: send it again later',
  ),
};

const TOO_LARGE = `the body must not exceed ${LIMITS.bodyBytesMax} bytes`;
const MESSAGE_RESPONSES = {
  200: jsonResponse('At least one message was accepted, and is durable.', SegmentAccepted, {
    accepted: ['One message', { success: true, trace_id: TRACE_ID, accepted: 1, rejected: 0, errors: [] }],
  }),
  400: failure('validation_failed', 'No message is valid, or the body is unusable.', 'batch must not be empty'),
  413: failure('too_large', 'The body is over 10 MB, as sent, decompressed or converted.', TOO_LARGE),
  ...KEY_FAILURES,
};

function settingsResponses(summary: string, example: object): Operation['responses'] {
  return {
    200: jsonResponse('The settings of this key.', SETTINGS, { settings: [summary, example] }),
    ...KEY_FAILURES,
  };
}

const TRACK = {
  event: 'Order Completed',
  userId: 'u-1042',
  messageId: 'm-1',
  timestamp: AT,
  properties: { revenue: 49.9 },
};

const MESSAGE_BODY: Operation['requestBody'] = {
  required: true,
  description: 'One call of an SDK, as UTF-8 JSON of at most 10 MB; docs/segment.md says what is read of it.',
  content: jsonContent(MESSAGE, { track: ['One event', TRACK] }),
};

const BATCH_BODY: Operation['requestBody'] = {
  required: true,
  description: 'UTF-8 JSON of at most 10 MB.',
  content: jsonContent(BATCH, { track: ['One event', { batch: [{ type: 'track', ...TRACK }] }] }),
};

const KEY = [{ writeKey: [] }, { secretKey: [] }, { publishableKey: [] }];
const KEY_AND_STATUS =
  'For Segment and RudderStack SDKs: change only the host and the key (docs/segment.md). The key is the username of Basic authentication, or `writeKey` in the body. Success is 200, and overload 429, because SDKs expect that.';

/** A key in the address ends up in logs and histories, so it has to be one that may be public. */
const keyInQuery = parameter(
  'query',
  'writeKey',
  'A publishable key, where it is not in a header. A secret key is not accepted here.',
);

const EXAMPLE_KEY = 'pk_dev_…';

function operation(
  operationId: string,
  summary: string,
  description: string,
  parts: Pick<Operation, 'security' | 'parameters' | 'requestBody' | 'responses'>,
): Operation {
  return { operationId, tags: ['Events'], summary, description, ...parts };
}

export const SEGMENT_PATHS: Readonly<Record<string, PathItem>> = {
  '/ingest/v1/batch': {
    post: operation(
      'ingestSegmentBatch',
      'Send a batch of messages of a Segment SDK',
      `${KEY_AND_STATUS} Also at \`/ingest/v1/b\` and \`/ingest/v1/import\`.`,
      { security: KEY, requestBody: BATCH_BODY, responses: MESSAGE_RESPONSES },
    ),
  },
  '/ingest/v1/{type}': {
    post: operation(
      'ingestSegmentMessage',
      'Send one message of a Segment SDK',
      `${KEY_AND_STATUS} Browsers use the first letter of the type as well: \`/ingest/v1/t\`.`,
      {
        security: KEY,
        parameters: [parameter('path', 'type', 'Which call it is.', { type: 'string', enum: [...MESSAGE_TYPES] })],
        requestBody: MESSAGE_BODY,
        responses: MESSAGE_RESPONSES,
      },
    ),
  },
  '/ingest/v1/m': {
    post: operation(
      'discardSegmentMetrics',
      'Discard the metrics that an SDK sends about itself',
      'Browser and mobile SDKs send counters here. They need no key and are not kept.',
      {
        security: [],
        responses: {
          200: jsonResponse('Received, and not kept.', SegmentDiscarded, { discarded: ['Always', { success: true }] }),
        },
      },
    ),
  },
  '/ingest/v1/projects/{key}/settings': {
    get: operation(
      'getSegmentSettings',
      'Get the settings that a Segment SDK loads first',
      'Segment’s SDKs for browsers and apps load this before they send anything. It says where to send, and names no other destination.',
      {
        security: [],
        parameters: [parameter('path', 'key', 'A publishable key. A secret key is not accepted here.')],
        responses: settingsResponses(
          'Behind TLS',
          segmentSettings(EXAMPLE_KEY, { host: 'sluice.example.com', isPlainHttp: false }),
        ),
      },
    ),
  },
  '/ingest/sourceConfig/': {
    get: operation(
      'getRudderSettings',
      'Get the settings that RudderStack’s browser SDK loads first',
      'RudderStack’s browser SDK loads this from its `configUrl`. It names a source without destinations.',
      {
        security: [{ writeKey: [] }],
        parameters: [keyInQuery],
        responses: settingsResponses('Always', rudderSettings('key_8sKd02mQx7Lp', EXAMPLE_KEY)),
      },
    ),
  },
  '/ingest/beacon/v1/batch': {
    post: operation(
      'ingestRudderBeacon',
      'Send a batch of messages as RudderStack’s browser SDK does when a page closes',
      'The same as `POST /ingest/v1/batch`, with the key in the address, because a beacon has no headers.',
      { security: [], parameters: [keyInQuery], requestBody: BATCH_BODY, responses: MESSAGE_RESPONSES },
    ),
  },
};
