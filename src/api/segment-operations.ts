/**
 * The routes for the SDKs of Segment and RudderStack, for the OpenAPI document, by hand: they are not in Fastify
 * (`edge/segment-intake.ts`). Messages are described as far as they are read; `docs/segment.md` has the mapping.
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
import { count, flag, list, object, text, Type } from './schema.ts';

const id = (description: string) =>
  Type.Optional(Type.Union([Type.String(), Type.Number(), Type.Null()], { description }));
const members = (description: string) =>
  Type.Optional(Type.Union([Type.Object({}, { additionalProperties: true }), Type.Null()], { description }));
const maybe = (description: string) => Type.Optional(Type.Union([Type.String(), Type.Null()], { description }));

const MESSAGE = {
  userId: id('Becomes `user_id`.'),
  anonymousId: id('Becomes `anon_id`.'),
  event: maybe('Of `track`: the name of the event.'),
  properties: members('Become properties of the event; `revenue` is its revenue, `value` its `event_value`.'),
  traits: members(
    'Of `identify`: `email` and `phone` are identifiers, names and address profile fields, others user_properties.',
  ),
  context: members('Kept as one property of the event. Its `traits` and `externalIds` identify the person too.'),
  messageId: id('Becomes `$event_id`: the same message again within 7 days is stored once.'),
  timestamp: maybe('When it happened, by the clock of the client: corrected by `sentAt` where there is one.'),
  sentAt: maybe('When it was sent, by the same clock.'),
};

const OPEN = { additionalProperties: true };
const SegmentMessage = object('SegmentMessage', 'One call of an SDK.', MESSAGE, OPEN);
const SegmentTypedMessage = object(
  'SegmentTypedMessage',
  'One call of an SDK, with its type.',
  { type: Type.Union(MESSAGE_TYPES.map((type) => Type.Literal(type))), ...MESSAGE },
  OPEN,
);
const SegmentBatch = object(
  'SegmentBatch',
  'Messages of one or more people.',
  {
    batch: Type.Array(SegmentTypedMessage, {
      minItems: 1,
      maxItems: MESSAGES_PER_REQUEST_MAX,
      description: 'The messages, in order.',
    }),
    writeKey: maybe('The key, if it is not in a header.'),
    sentAt: maybe('When the batch was sent, for messages that do not say it.'),
    context: members('For all messages; each may override members of it.'),
  },
  OPEN,
);

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

type FailureCode = 'validation_failed' | 'unauthorized' | 'forbidden' | 'too_large' | 'overloaded';

function failure(code: FailureCode, description: string, message: string): Response {
  const { text: error, retryable } = ERRORS[code];
  const example = { success: false, error, code, message, trace_id: TRACE_ID };
  return jsonResponse(description, SegmentFailure, { [code]: [description, example] }, retryable);
}

const TOO_LARGE = `the body must not exceed ${LIMITS.bodyBytesMax} bytes`;
const RESPONSES = {
  200: jsonResponse('At least one message was accepted, and is durable.', SegmentAccepted, {
    accepted: ['One message', { success: true, trace_id: TRACE_ID, accepted: 1, rejected: 0, errors: [] }],
  }),
  400: failure('validation_failed', 'No message is valid, or the body is unusable.', 'batch must not be empty'),
  401: failure('unauthorized', 'No valid key.', 'no valid key'),
  403: failure(
    'forbidden',
    'The key may not be used from this origin.',
    'this key may not be used from https://a.example',
  ),
  413: failure('too_large', 'The body is over 10 MB, as sent, decompressed or converted.', TOO_LARGE),
  429: failure(
    'overloaded',
    'Temporarily unavailable, or the key is over its rate limit (then `code` is `rate_limited`): retry after `Retry-After` seconds.',
    'nothing was stored: send it again later',
  ),
};

const TRACK = {
  event: 'Order Completed',
  userId: 'u-1042',
  messageId: 'm-1',
  timestamp: AT,
  properties: { revenue: 49.9 },
};
const security = [{ writeKey: [] }, { secretKey: [] }, { publishableKey: [] }];
const DESCRIPTION =
  'For Segment and RudderStack SDKs: change only the host and the key (docs/segment.md). The key is the username of Basic authentication, or `writeKey` in the body. Success is 200, and overload 429, because SDKs expect that.';

const BATCH_BODY: Operation['requestBody'] = {
  required: true,
  description: `UTF-8 JSON of at most 10 MB and ${MESSAGES_PER_REQUEST_MAX} messages.`,
  content: jsonContent(SegmentBatch, { track: ['One event', { batch: [{ type: 'track', ...TRACK }] }] }),
};

const BATCH: Operation = {
  operationId: 'ingestSegmentBatch',
  tags: ['Events'],
  summary: 'Send a batch of messages of a Segment SDK',
  description: `${DESCRIPTION} Also at \`/ingest/v1/b\` and \`/ingest/v1/import\`.`,
  security,
  requestBody: BATCH_BODY,
  responses: RESPONSES,
};

const MESSAGE_OF_TYPE: Operation = {
  operationId: 'ingestSegmentMessage',
  tags: ['Events'],
  summary: 'Send one message of a Segment SDK',
  description: `${DESCRIPTION} Browsers use the first letter of the type as well: \`/ingest/v1/t\`.`,
  security,
  parameters: [parameter('path', 'type', 'Which call it is.', { type: 'string', enum: [...MESSAGE_TYPES] })],
  requestBody: {
    required: true,
    description: 'UTF-8 JSON of at most 10 MB.',
    content: jsonContent(SegmentMessage, { track: ['One event', TRACK] }),
  },
  responses: RESPONSES,
};

/** A key in the address ends up in logs and histories, so it has to be one that may be public. */
const writeKeyParameter = parameter(
  'query',
  'writeKey',
  'A publishable key, where it is not in a header. A secret key is not accepted here.',
);

const BEACON: Operation = {
  ...BATCH,
  operationId: 'ingestRudderBeacon',
  summary: 'Send a batch of messages as RudderStack’s browser SDK does when a page closes',
  description: 'The same as `POST /ingest/v1/batch`, with the key in the address, because a beacon has no headers.',
  security: [],
  parameters: [writeKeyParameter],
};

const SegmentDiscarded = object('SegmentDiscarded', 'Received, and not kept.', { success: Type.Literal(true) });

const SDK_METRICS: Operation = {
  operationId: 'discardSegmentMetrics',
  tags: ['Events'],
  summary: 'Discard the metrics that an SDK sends about itself',
  description: 'Browser and mobile SDKs send counters here. They need no key and are not kept.',
  security: [],
  responses: {
    200: jsonResponse('Received, and not kept.', SegmentDiscarded, { discarded: ['Always', { success: true }] }),
  },
};

const SegmentSettings = object('SegmentSettings', 'What SDKs in browsers and apps load before they send.', {
  integrations: Type.Object({
    'Segment.io': Type.Object({
      apiKey: text('The key, as it was given.'),
      apiHost: text('Where to send: host and path, without a scheme.'),
      protocol: Type.Optional(Type.Literal('http')),
    }),
  }),
  plan: Type.Object({ track: Type.Object({ __default: Type.Object({ enabled: flag('Always true.') }) }) }),
});

const { 401: UNAUTHORIZED, 403: FORBIDDEN, 429: OVERLOADED } = RESPONSES;
const SETTINGS_FAILURES = { 401: UNAUTHORIZED, 403: FORBIDDEN, 429: OVERLOADED };

const EXAMPLE_KEY = 'pk_dev_…';
const SETTINGS_EXAMPLE = segmentSettings(EXAMPLE_KEY, { host: 'sluice.example.com', isPlainHttp: false });

const SETTINGS: Operation = {
  operationId: 'getSegmentSettings',
  tags: ['Events'],
  summary: 'Get the settings that a Segment SDK loads first',
  description:
    'Segment’s SDKs for browsers and apps load this before they send anything. It says where to send, and names no other destination.',
  security: [],
  parameters: [parameter('path', 'key', 'A publishable key. A secret key is not accepted here.')],
  responses: {
    200: jsonResponse('The settings of this key.', SegmentSettings, { settings: ['Behind TLS', SETTINGS_EXAMPLE] }),
    ...SETTINGS_FAILURES,
  },
};

const RudderSettings = object('RudderSettings', 'What RudderStack’s browser SDK loads before it sends.', {
  source: Type.Object({
    id: text('The id of the key.'),
    name: text('Always `Sluice`.'),
    writeKey: text('The key, as it was given.'),
    enabled: flag('Always true.'),
    workspaceId: text('The id of the key.'),
    config: Type.Object({}, { additionalProperties: true, description: 'Turns off reports about the SDK itself.' }),
    connections: list(Type.Unknown(), 'Always empty.'),
    destinations: list(Type.Unknown(), 'Always empty: Sluice is the only one.'),
    dataplanes: Type.Object({}, { description: 'Always empty.' }),
  }),
});

const RUDDER_SETTINGS: Operation = {
  operationId: 'getRudderSettings',
  tags: ['Events'],
  summary: 'Get the settings that RudderStack’s browser SDK loads first',
  description: 'RudderStack’s browser SDK loads this from its `configUrl`. It names a source without destinations.',
  security: [{ writeKey: [] }],
  parameters: [writeKeyParameter],
  responses: {
    200: jsonResponse('The settings of this key.', RudderSettings, {
      settings: ['Always', rudderSettings('key_8sKd02mQx7Lp', EXAMPLE_KEY)],
    }),
    ...SETTINGS_FAILURES,
  },
};

export const SEGMENT_PATHS: Readonly<Record<string, PathItem>> = {
  '/ingest/v1/batch': { post: BATCH },
  '/ingest/v1/{type}': { post: MESSAGE_OF_TYPE },
  '/ingest/v1/m': { post: SDK_METRICS },
  '/ingest/v1/projects/{key}/settings': { get: SETTINGS },
  '/ingest/sourceConfig/': { get: RUDDER_SETTINGS },
  '/ingest/beacon/v1/batch': { post: BEACON },
};
