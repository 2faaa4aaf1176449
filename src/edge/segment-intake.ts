/**
 * The routes for the SDKs of Segment and RudderStack, with the same checks, log and metrics as `POST /ingest/events`
 * (`request-intake.ts`), and at no cost to that route. A body is converted to our own format (`intake/`), and the
 * converted body is appended.
 *
 * Order of checks: path and method, key where a header or the address has it (401), charset and encoding (400), size
 * (413), rate limit and admission (429), key where only the body has it (401), JSON and messages (400).
 */

import type { ServerResponse } from 'node:http';
import { ERRORS, type ErrorCode } from '../errors.ts';
import type { Conversion, ConvertedRequest, MessageError } from '../intake/segment.ts';
import { MESSAGE_TYPES, type MessageType } from '../intake/segment-message.ts';
import type { ApiKey } from '../keys.ts';
import { LIMITS } from '../model.ts';
import { envelopeOfAnyType, segmentKeyOf } from './request-headers.ts';
import { type Exchange, RequestIntake } from './request-intake.ts';
import { type Failure, limitUnwantedBody, retryAfter, send, sendPreflight } from './responses.ts';

export class SegmentIntake extends RequestIntake<MessageError> {
  protected override readonly unavailableCode = 'overloaded';
  protected override readonly overLimitCode = 'rate_limited';
  protected override readonly invalidKey = INVALID_KEY;

  protected override begin(exchange: Exchange): void {
    const { request, response, traceId } = exchange;
    const { method, url = '' } = request;
    const route = segmentRouteOf(url);
    if (route === undefined) {
      this.fail(exchange, {
        code: 'not_found',
        message: 'there is no such route; docs/segment.md lists those that there are',
      });
      return;
    }
    if (method === 'OPTIONS' && request.headers.origin !== undefined) {
      this.finish(exchange, 204);
      sendPreflight(response, traceId, SEGMENT_PREFLIGHT);
      return;
    }
    const expected = route.kind === 'settings' || route.kind === 'rudder_settings' ? 'GET' : 'POST';
    if (method !== expected) {
      const headers = ['Allow', `${expected}, OPTIONS`];
      this.fail(exchange, { code: 'method_not_allowed', message: `use ${expected}`, headers });
      return;
    }
    if (route.kind === 'metrics') {
      if (!request.complete) limitUnwantedBody(request);
      this.#respond(exchange, { success: true });
      return;
    }
    const given =
      route.kind === 'settings'
        ? { key: route.writeKey, isInUrl: true }
        : segmentKeyOf(request.headers.authorization, url);
    if (route.kind !== 'messages') {
      const address = serverAddress(this.parts.publicUrl, request.headers.host);
      this.authenticate(exchange, given, (key) => {
        const writeKey = given?.key ?? '';
        const isSegment = route.kind === 'settings';
        this.#respond(exchange, isSegment ? segmentSettings(writeKey, address) : rudderSettings(key.id, writeKey));
      });
      return;
    }
    const { type } = route;
    const receive = (key: ApiKey | null, use: (body: Buffer) => void): void =>
      this.receive(exchange, key, envelopeOfAnyType(request.headers), use);
    if (given === undefined) receive(null, (body) => this.#findKey(exchange, type, body));
    else this.authenticate(exchange, given, (key) => receive(key, (body) => this.#convert(exchange, key, type, body)));
  }

  /** Without a key in the headers or the URL, the client is unknown until its key is found in the body. */
  #findKey(exchange: Exchange, type: MessageType | null, body: Buffer): void {
    this.process(exchange, { kind: 'findKey' }, body, null, ({ writeKey, body: bytes }) => {
      const given = writeKey === null ? undefined : { key: writeKey, isInUrl: false };
      this.authenticate(exchange, given, (key) => this.#convert(exchange, key, type, bytes));
    });
  }

  #convert(exchange: Exchange, key: ApiKey, type: MessageType | null, body: Uint8Array): void {
    this.withPlan(exchange, key, (plan) => {
      const { receiptTime, matchOptions } = this.parts;
      const options = { type, receivedAt: receiptTime(), matchOptions };
      this.process(exchange, { kind: 'convert', options }, body, plan, (conversion) =>
        this.#converted(exchange, key, conversion),
      );
    });
  }

  #converted(exchange: Exchange, key: ApiKey, conversion: Conversion): void {
    if (conversion.ok) {
      if (this.growOrRespond(exchange, conversion.body.byteLength)) this.#append(exchange, key, conversion);
    } else if (conversion.code === 'validation_failed') this.respondInvalid(exchange, conversion.message);
    else this.fail(exchange, conversion);
  }

  #append(
    exchange: Exchange,
    key: ApiKey,
    { body, userCount, eventCount, rejections, errors }: ConvertedRequest,
  ): void {
    // A retry converts to another body (decisions/037); messageId is what recognises it.
    const content = { idempotencyKey: null, format: 'segment', body, userCount, eventCount, rejections } as const;
    // Messages of one person are one user, and yet each of them counts.
    const messages = eventCount + errors.length;
    this.append(exchange, key, content, messages, () => {
      if (eventCount === 0) {
        this.fail(exchange, { code: 'validation_failed', message: 'no message is valid: see errors', errors });
        return;
      }
      const { traceId } = exchange;
      const rejected = errors.length;
      this.#respond(exchange, { success: true, trace_id: traceId, accepted: eventCount, rejected, errors });
    });
  }

  #respond(exchange: Exchange, body: object): void {
    this.finish(exchange, 200);
    send(exchange.response, 200, exchange.traceId, JSON.stringify(body), exchange.allowOrigin);
  }

  protected override sendFailure({ response, traceId, allowOrigin }: Exchange, failure: Failure<MessageError>): void {
    sendSegmentFailure(response, traceId, failure, allowOrigin);
  }
}

const PREFIX = '/ingest/v1/';
const RUDDER_CONFIG = '/ingest/sourceConfig';
const RUDDER_BEACON = '/ingest/beacon/v1/batch';

type SegmentRoute =
  /** Takes messages: a batch, or one of the type. */
  | { readonly kind: 'messages'; readonly type: MessageType | null }
  /** What browsers and apps measure about the SDK itself: nothing that is kept. */
  | { readonly kind: 'metrics' }
  | { readonly kind: 'settings'; readonly writeKey: string }
  | { readonly kind: 'rudder_settings' };

const MESSAGE_ROUTES: ReadonlyMap<string, MessageType | null> = new Map<string, MessageType | null>([
  ...['batch', 'b', 'import'].map((name) => [name, null] as const),
  ...MESSAGE_TYPES.flatMap((type) => [[type, type] as const, [type.charAt(0), type] as const]),
]);
const SETTINGS = /^projects\/([^/]+)\/settings$/;

/** For every request that is not for `POST /ingest/events`, so it is cheap. */
export function isSegmentPath(url: string | undefined): boolean {
  if (url?.startsWith('/ingest/') !== true) return false;
  return url.startsWith(PREFIX) || url.startsWith(RUDDER_CONFIG) || url.startsWith(RUDDER_BEACON);
}

function segmentRouteOf(url: string): SegmentRoute | undefined {
  const [address = ''] = url.split('?', 1);
  const path = address.endsWith('/') ? address.slice(0, -1) : address;
  if (path === RUDDER_CONFIG) return { kind: 'rudder_settings' };
  if (path === RUDDER_BEACON) return { kind: 'messages', type: null };
  if (!path.startsWith(PREFIX)) return undefined;
  const rest = path.slice(PREFIX.length);
  const type = MESSAGE_ROUTES.get(rest);
  if (type !== undefined) return { kind: 'messages', type };
  if (rest === 'm') return { kind: 'metrics' };
  const writeKey = SETTINGS.exec(rest)?.[1];
  return writeKey === undefined ? undefined : { kind: 'settings', writeKey };
}

/** Where a client is to send to: the address of this server as clients know it. */
interface ServerAddress {
  /** Without a scheme: that is how SDKs write it. */
  readonly host: string;
  readonly isPlainHttp: boolean;
}

const LOOPBACK = /^(?:localhost|127\.[\d.]+|\[::1\])(?::\d+)?$/;

/** `publicUrl` is empty where it is not set; then the client says how it reached the server. */
function serverAddress(publicUrl: string, hostHeader: string | undefined): ServerAddress {
  const { protocol, host, pathname } = URL.parse(publicUrl) ?? {};
  if (host !== undefined && pathname !== undefined) {
    return { host: host + pathname.replace(/\/$/, ''), isPlainHttp: protocol === 'http:' };
  }
  // Without a proxy in front there is no TLS, but only of this machine is that certain.
  return { host: hostHeader ?? '', isPlainHttp: LOOPBACK.test(hostHeader ?? '') };
}

/** What `GET /v1/projects/{key}/settings` of Segment gives: send everything here, and to no other destination. */
export function segmentSettings(writeKey: string, { host, isPlainHttp }: ServerAddress): object {
  const apiHost = `${host}/ingest/v1`;
  return {
    integrations: { 'Segment.io': { apiKey: writeKey, apiHost, ...(isPlainHttp && { protocol: 'http' }) } },
    plan: { track: { __default: { enabled: true } } },
  };
}

/** What `GET /sourceConfig/` of RudderStack gives: a source that is enabled, without destinations or reports of errors. */
export function rudderSettings(keyId: string, writeKey: string): object {
  const disabled = { enabled: false };
  return {
    source: {
      id: keyId,
      name: 'Sluice',
      writeKey,
      enabled: true,
      workspaceId: keyId,
      config: { statsCollection: { errors: disabled, metrics: disabled } },
      connections: [],
      destinations: [],
      dataplanes: {},
    },
  };
}

const WHERE_KEYS_GO =
  'send the write key as the user of Authorization: Basic, or as writeKey in the body; a secret key is not accepted in the URL';

const INVALID_KEY = {
  code: 'unauthorized',
  message: `the key is not valid: unknown, revoked, expired or for another environment; ${WHERE_KEYS_GO}`,
} as const;

/** Where a failure does not say more: SDKs expect a message in every one. */
const FAILURE_TEXTS: Partial<Record<ErrorCode, string>> = {
  unauthorized: `no key found: ${WHERE_KEYS_GO}`,
  too_large: `the body must not exceed ${LIMITS.bodyBytesMax} bytes`,
  overloaded: 'nothing was stored: send it again later',
};

/**
 * Differs from the failures of `POST /ingest/events` where SDKs would misread those: errors carry `code` and `message`,
 * because some retry a 400 without them; a server that cannot accept now says 429, because most read `Retry-After` of no
 * other status.
 */
export function sendSegmentFailure(
  response: ServerResponse,
  traceId: string,
  { code, errors = [], headers = [], retryAfterMs, ...failure }: Failure<MessageError>,
  allowOrigin: string | null,
): void {
  const { status, text, retryable } = ERRORS[code];
  const message = failure.message ?? FAILURE_TEXTS[code] ?? text;
  const body = { success: false, error: text, code, message, trace_id: traceId };
  const counts = errors.length === 0 ? {} : { accepted: 0, rejected: errors.length, errors };
  if (retryable) headers.push('Retry-After', retryAfter(retryAfterMs));
  send(response, status, traceId, JSON.stringify({ ...body, ...counts }), allowOrigin, headers);
}

/**
 * The browser SDKs of Segment and RudderStack send these headers, and their next versions may send others: a page whose
 * preflight fails sends nothing at all. The wildcard does not include `Authorization`, and browsers from before 2020
 * do not know it.
 */
const ALLOWED_HEADERS = [
  ...['Authorization', 'Content-Type', 'Content-Encoding', 'Idempotency-Key', 'X-Retry-Count', 'AnonymousId', 'SentAt'],
  ...['Rsa-Retry-Attempt', 'Rsa-Since-Last-Attempt', 'Rsa-Since-First-Attempt', 'Rsa-Retry-Reason', 'Rsa-Recovered'],
  '*',
];
export const SEGMENT_PREFLIGHT = { methods: 'GET, POST', headers: ALLOWED_HEADERS.join(', ') };
