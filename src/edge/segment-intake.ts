/**
 * The routes for the SDKs of Segment and RudderStack, from the first header to the response: behind the same keys, admission,
 * log and metrics as `POST /ingest/events` (`ingest.ts`), which does no work for them. A body is converted to our own form
 * (`intake/`) and appended as such.
 *
 * Order of checks: path and method, key where a header or the address has it (401), charset and encoding (400), size
 * (413), rate limit and admission (429), key where only the body has it (401), JSON and messages (400).
 *
 * Invariant: 200 is sent only after the log says that the accepted messages are durable. Each request gets exactly one response,
 * and its reservation is given back exactly once.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { ERRORS } from '../errors.ts';
import type { MatchOptions } from '../identity/match-keys.ts';
import type { Conversion, ConvertedRequest } from '../intake/segment.ts';
import { writeKeyOf } from '../intake/segment.ts';
import type { MessageType } from '../intake/segment-message.ts';
import { isUsable } from '../keys/cache.ts';
import type { ApiKey } from '../keys.ts';
import { LogUnavailableError } from '../log.ts';
import { LIMITS, tenantOf } from '../model.ts';
import { type CounterIndex, METRIC, REQUESTS_BY_STATUS } from '../telemetry/metrics.ts';
import type { Reservation } from './admission.ts';
import { type Cors, stopUnwantedBody } from './responses.ts';
import { type BodyRead, readBody } from './body.ts';
import { type IngestParts, ONE_LIMITED, REFUSED } from './ingest.ts';
import { corsFor, isForeignOrigin } from './origins.ts';
import { overLimitText } from './rate-limits.ts';
import { type Envelope, envelopeOfAnyType, segmentKeyOf } from './request-headers.ts';
import {
  type SegmentFailure,
  sendJson,
  sendSegmentFailure,
  sendSegmentPreflight,
  sendSuccess,
} from './segment-responses.ts';
import { rudderSettings, segmentRouteOf, segmentSettings, serverAddress } from './segment-routes.ts';
import { convertBody, LARGE_BODY_BYTES } from './validate-body.ts';

export interface SegmentIntakeParts extends IngestParts {
  readonly matchOptions: MatchOptions;
  /** Where clients reach this server; empty if that is not set. */
  readonly publicUrl: string;
}

/** One request under way. */
interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly traceId: string;
  readonly startedAt: number;
  /** The client waits for `100 Continue` before it sends the body. */
  readonly expectsContinue: boolean;
  cors: Cors | null;
  reservation: Reservation | null;
}

const NO_KEY =
  'no valid key: send the write key as the user of Authorization: Basic, or as writeKey in the body; a secret key is not accepted in an address';

export class SegmentIntake {
  readonly #parts: SegmentIntakeParts;

  constructor(parts: SegmentIntakeParts) {
    this.#parts = parts;
  }

  handle(request: IncomingMessage, response: ServerResponse, expectsContinue = false): void {
    const exchange: Exchange = {
      request,
      response,
      traceId: this.#parts.newTraceId(),
      startedAt: performance.now(),
      expectsContinue,
      cors: request.headers.origin === undefined ? null : { allow: '*' },
      reservation: null,
    };
    this.#guarded(exchange, () => this.#route(exchange));
  }

  #route(exchange: Exchange): void {
    const { request, response, traceId } = exchange;
    const { method, url = '' } = request;
    const route = segmentRouteOf(url);
    if (route === undefined) {
      this.#fail(exchange, {
        code: 'not_found',
        message: 'there is no such route; docs/segment.md lists those that there are',
      });
      return;
    }
    if (method === 'OPTIONS' && request.headers.origin !== undefined) {
      this.#settle(exchange, 204);
      sendSegmentPreflight(response, traceId);
      return;
    }
    const expected = route.kind === 'settings' || route.kind === 'rudder_settings' ? 'GET' : 'POST';
    if (method !== expected) {
      const headers = ['Allow', `${expected}, OPTIONS`];
      this.#fail(exchange, { code: 'method_not_allowed', message: `use ${expected}`, headers });
      return;
    }
    if (route.kind === 'metrics') {
      if (!request.complete) stopUnwantedBody(request);
      this.#respond(exchange, { success: true });
      return;
    }
    const given =
      route.kind === 'settings'
        ? { key: route.writeKey, isInAddress: true }
        : segmentKeyOf(request.headers.authorization, url);
    if (route.kind !== 'messages') {
      const address = serverAddress(this.#parts.publicUrl, request.headers.host);
      this.#authenticate(exchange, given, (key) => {
        const writeKey = given?.key ?? '';
        const isSegment = route.kind === 'settings';
        this.#respond(exchange, isSegment ? segmentSettings(writeKey, address) : rudderSettings(key.id, writeKey));
      });
      return;
    }
    const { type } = route;
    if (given === undefined) this.#receive(exchange, (body) => this.#findKey(exchange, type, body));
    else {
      this.#authenticate(exchange, given, (key) => {
        if (this.#isOverLimit(exchange, key, 0)) return;
        this.#receive(exchange, (body) => this.#convert(exchange, key, type, body));
      });
    }
  }

  /** Calls back with the key if it may be used here; responds otherwise. */
  #authenticate(
    exchange: Exchange,
    given: { readonly key: string; readonly isInAddress: boolean } | undefined,
    use: (key: ApiKey) => void,
  ): void {
    if (given === undefined) {
      this.#unauthorized(exchange);
      return;
    }
    const { keys, metrics } = this.#parts;
    const known = keys.peek(given.key);
    if (known !== undefined) {
      this.#authenticated(exchange, known, given.isInAddress, use);
      return;
    }
    metrics.inc(METRIC.key_lookups);
    keys
      .lookup(given.key)
      .then(
        (found) => {
          if (found === undefined) this.#unauthorized(exchange);
          else this.#authenticated(exchange, found, given.isInAddress, use);
        },
        () => this.#unavailable(exchange, METRIC.unavailable_keys),
      )
      .catch((error: unknown) => this.#unexpected(exchange, error));
  }

  #authenticated(exchange: Exchange, key: ApiKey, isInAddress: boolean, use: (key: ApiKey) => void): void {
    const { environment, keyUsage } = this.#parts;
    const now = this.#parts.now();
    // A secret key in an address ends up in logs and histories: it is not accepted from there.
    if (!isUsable(key, now, environment) || (isInAddress && key.kind !== 'publishable')) {
      this.#unauthorized(exchange);
      return;
    }
    const { origin, host } = exchange.request.headers;
    const leaked = key.kind === 'secret' && isForeignOrigin(origin, host);
    keyUsage.note(key.id, now, origin, leaked);
    if (origin !== undefined) {
      const cors = corsFor(key, origin, leaked);
      exchange.cors = cors.allowed;
      if (cors.refused) {
        this.#fail(exchange, { code: 'forbidden', message: `this key may not be used from ${origin}` });
        return;
      }
    }
    use(key);
  }

  /** Calls back with the body once it is there; responds otherwise. */
  #receive(exchange: Exchange, use: (body: Buffer) => void): void {
    const { request } = exchange;
    const envelope = envelopeOfAnyType(request.headers);
    if (typeof envelope === 'string') this.#fail(exchange, { code: 'validation_failed', message: envelope });
    else if (envelope.declaredBytes > LIMITS.bodyBytesMax) this.#tooLarge(exchange);
    else this.#admit(exchange, envelope, use);
  }

  #admit(exchange: Exchange, envelope: Envelope, use: (body: Buffer) => void): void {
    const { refusal, log, inFlight } = this.#parts;
    const refused = refusal();
    if (refused !== null) {
      this.#unavailable(exchange, REFUSED[refused]);
      return;
    }
    if (log.problem() !== null) {
      this.#unavailable(exchange, METRIC.unavailable_log);
      return;
    }
    const reservation = inFlight.open(envelope.declaredBytes);
    if (!reservation) {
      this.#unavailable(exchange, METRIC.unavailable_in_flight);
      return;
    }
    exchange.reservation = reservation;
    if (exchange.expectsContinue) exchange.response.writeContinue();
    readBody(exchange.request, envelope, reservation, (read) => {
      this.#guarded(exchange, () => this.#bodyRead(exchange, read, use));
    });
  }

  #bodyRead(exchange: Exchange, { body, problem }: BodyRead, use: (body: Buffer) => void): void {
    if (body !== null) use(body);
    else if (problem === 'too_large') this.#tooLarge(exchange);
    else if (problem === 'no_room') this.#unavailable(exchange, METRIC.unavailable_in_flight);
    else if (problem === 'bad_encoding') {
      const message = 'body cannot be decompressed as Content-Encoding says';
      this.#fail(exchange, { code: 'validation_failed', message });
    } else exchange.reservation?.release();
  }

  /** The client is not known until its body was looked at: that is all that is done before. */
  #findKey(exchange: Exchange, type: MessageType | null, body: Buffer): void {
    const found = (writeKey: string | null, bytes: Uint8Array): void => {
      const given = writeKey === null ? undefined : { key: writeKey, isInAddress: false };
      this.#authenticate(exchange, given, (key) => this.#convert(exchange, key, type, bytes));
    };
    if (body.length < LARGE_BODY_BYTES) {
      found(writeKeyOf(body), body);
      return;
    }
    this.#parts.largeBodies
      .findKey(body)
      .then(({ writeKey, body: bytes }) => found(writeKey, bytes))
      .catch((error: unknown) => this.#unexpected(exchange, error));
  }

  #convert(exchange: Exchange, key: ApiKey, type: MessageType | null, body: Uint8Array): void {
    const { matchOptions, receiptTime, largeBodies, metrics } = this.#parts;
    const options = { type, receivedAt: receiptTime(), matchOptions };
    if (body.length < LARGE_BODY_BYTES) {
      this.#converted(exchange, key, convertBody(body, options));
      return;
    }
    metrics.inc(METRIC.large_bodies);
    largeBodies
      .convert(body, options)
      .then((conversion) => this.#converted(exchange, key, conversion))
      .catch((error: unknown) => this.#unexpected(exchange, error));
  }

  #converted(exchange: Exchange, key: ApiKey, conversion: Conversion): void {
    if (!conversion.ok) {
      this.#fail(exchange, conversion);
      return;
    }
    const { response, reservation } = exchange;
    // No response can be read any more, and the client will send it again.
    if (response.destroyed || response.socket?.writable === false) {
      reservation?.release();
      return;
    }
    if (this.#isOverLimit(exchange, key, conversion.userCount)) return;
    if (reservation?.growTo(conversion.body.byteLength) === false) {
      this.#unavailable(exchange, METRIC.unavailable_in_flight);
      return;
    }
    this.#append(exchange, key, conversion);
  }

  #append(exchange: Exchange, key: ApiKey, conversion: ConvertedRequest): void {
    const { body, userCount, eventCount, rejections, errors } = conversion;
    const bodyBytes = body.byteLength;
    this.#parts.log
      .append({
        traceId: exchange.traceId,
        tenantId: tenantOf(key.accountId, key.environment),
        receivedAt: this.#parts.receiptTime(),
        keyId: key.id,
        keyKind: key.kind,
        // A retry converts to another body (decisions/037); messageId is what recognises it.
        idempotencyKey: null,
        format: 'segment',
        body,
        userCount,
        eventCount,
        rejections,
      })
      .then(
        () => {
          const { metrics, keyUsage, now } = this.#parts;
          const usersRejected = rejections.length;
          const users = userCount - usersRejected;
          keyUsage.add(key.id, now(), { users, events: eventCount, usersRejected, requestsLimited: 0 });
          metrics.inc(METRIC.users_accepted, userCount - rejections.length);
          metrics.inc(METRIC.users_rejected, rejections.length);
          metrics.inc(METRIC.events_accepted, eventCount);
          metrics.inc(METRIC.body_bytes, bodyBytes);
          if (eventCount === 0) {
            this.#fail(exchange, { code: 'validation_failed', message: 'no message is valid: see errors', errors });
            return;
          }
          this.#settle(exchange, 200);
          sendSuccess(exchange.response, exchange.traceId, eventCount, errors, exchange.cors);
        },
        (error: unknown) => {
          if (!(error instanceof LogUnavailableError)) throw error;
          this.#unavailable(exchange, METRIC.unavailable_log);
        },
      )
      .catch((error: unknown) => this.#unexpected(exchange, error));
  }

  /** Takes so many users from what the key may send; responds if there is nothing left. */
  #isOverLimit(exchange: Exchange, key: ApiKey, users: number): boolean {
    const { rateLimits, keyUsage, metrics, now } = this.#parts;
    const retryAfterMs = rateLimits.take(key, users);
    if (retryAfterMs === 0) return false;
    keyUsage.add(key.id, now(), ONE_LIMITED);
    metrics.inc(METRIC.unavailable_rate_limit);
    this.#fail(exchange, { code: 'rate_limited', message: overLimitText(key), retryAfterMs });
    return true;
  }

  #respond(exchange: Exchange, body: object): void {
    this.#settle(exchange, 200);
    sendJson(exchange.response, exchange.traceId, body, exchange.cors);
  }

  #unauthorized(exchange: Exchange): void {
    this.#fail(exchange, { code: 'unauthorized', message: NO_KEY });
  }

  #tooLarge(exchange: Exchange): void {
    this.#fail(exchange, { code: 'too_large', message: `the body must not exceed ${LIMITS.bodyBytesMax} bytes` });
  }

  #unavailable(exchange: Exchange, metric: CounterIndex): void {
    this.#parts.metrics.inc(metric);
    this.#fail(exchange, { code: 'overloaded', message: 'nothing was stored: send it again later' });
  }

  #guarded(exchange: Exchange, run: () => void): void {
    try {
      run();
    } catch (error) {
      this.#unexpected(exchange, error);
    }
  }

  /** A bug. The client sends it again later, the operator finds where to look, and the server goes on. */
  #unexpected(exchange: Exchange, error: unknown): void {
    this.#parts.logger.error({ traceId: exchange.traceId, err: error }, 'request failed unexpectedly');
    exchange.reservation?.release();
    if (exchange.response.headersSent) exchange.request.destroy();
    else this.#fail(exchange, { code: 'overloaded', message: 'it failed unexpectedly: send it again later' });
  }

  #fail(exchange: Exchange, failure: SegmentFailure): void {
    const { request, response, traceId, cors } = exchange;
    if (failure.code === 'validation_failed' && failure.errors === undefined) {
      this.#parts.logger.info({ traceId, reason: failure.message }, 'request rejected');
    }
    this.#settle(exchange, ERRORS[failure.code].status);
    if (!request.complete) stopUnwantedBody(request);
    sendSegmentFailure(response, traceId, failure, cors);
  }

  #settle(exchange: Exchange, status: number): void {
    exchange.reservation?.release();
    if (this.#parts.isLeaving()) exchange.response.shouldKeepAlive = false;
    const { metrics } = this.#parts;
    const counter = REQUESTS_BY_STATUS.get(status);
    if (counter !== undefined) metrics.inc(counter);
    metrics.observe(METRIC.request_duration, (performance.now() - exchange.startedAt) / 1000);
  }
}
