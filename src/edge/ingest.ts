/**
 * `POST /ingest/events`, from the first header to the response. The order of checks is part of the contract: method,
 * key (401), content type and encoding (400), size (413), rate limit and admission (503), JSON (400), users. The rate
 * limit counts users, so it is looked at again once they are known.
 *
 * Invariant: 202 is sent only after the log says that the entry is durable. Each request gets exactly one response, and
 * its reservation is given back exactly once, whatever happens in between.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { ERRORS } from '../errors.ts';
import { isUsable, type KeyCache } from '../keys/cache.ts';
import { type LogAppender, LogUnavailableError } from '../log.ts';
import { type CounterIndex, METRIC, type MetricsWriter, REQUESTS_BY_STATUS } from '../telemetry/metrics.ts';
import { type Environment, LIMITS, tenantOf } from '../model.ts';
import type { ApiKey, KeyVolume } from '../keys.ts';
import type { InFlight, Reservation } from './admission.ts';
import { type Cors, type Failure, sendAccepted, sendFailure, sendPreflight, stopUnwantedBody } from './responses.ts';
import { type BodyRead, readBody } from './body.ts';
import { corsFor, isForeignOrigin } from './origins.ts';
import type { RateLimitedLogger } from '../telemetry/rate-limited-logger.ts';
import { type Envelope, envelopeOf, keyOf } from './request-headers.ts';
import type { KeyUsageTracker } from './key-usage.ts';
import { overLimitText, type RateLimits } from './rate-limits.ts';
import { type ValidatedBody, LARGE_BODY_BYTES, type LargeBodyValidator, validateBody } from './validate-body.ts';

export interface IngestParts {
  readonly log: LogAppender;
  readonly keys: KeyCache;
  readonly keyUsage: KeyUsageTracker;
  readonly rateLimits: RateLimits;
  readonly inFlight: InFlight;
  readonly largeBodies: LargeBodyValidator;
  readonly metrics: MetricsWriter;
  readonly logger: RateLimitedLogger;
  readonly environment: 'any' | Environment;
  /** The wall clock, for keys. */
  readonly now: () => number;
  /** The clock that never goes back (`clock/clock.ts`), for what is stored. */
  readonly receiptTime: () => number;
  readonly newTraceId: () => string;
  readonly refusal: () => Refusal | null;
  /** Whether connections are to end with their next response. */
  readonly isLeaving: () => boolean;
}

/** Why nothing may be accepted now, apart from the log and the memory. */
export type Refusal = 'shutdown' | 'disk' | 'backlog';

/** The counter of each. */
export const REFUSED = {
  shutdown: METRIC.unavailable_shutdown,
  disk: METRIC.unavailable_disk,
  backlog: METRIC.unavailable_backlog,
} as const;

/** What a request counts as that a rate limit refused. */
export const ONE_LIMITED: KeyVolume = { users: 0, events: 0, usersRejected: 0, requestsLimited: 1 };

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

export class Ingest {
  readonly #parts: IngestParts;

  constructor(parts: IngestParts) {
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
    try {
      this.#begin(exchange);
    } catch (error) {
      this.#unexpected(exchange, error);
    }
  }

  #begin(exchange: Exchange): void {
    const { request } = exchange;
    if (request.method !== 'POST') {
      this.#handleOtherMethod(exchange);
      return;
    }
    const given = keyOf(request.headers.authorization, request.url ?? '');
    if (given === undefined) {
      this.#fail(exchange, { code: 'unauthorized' });
      return;
    }
    const { key, isInQuery } = given;
    const now = this.#parts.now();
    const known = this.#parts.keys.peek(key);
    if (known) {
      this.#authenticated(exchange, known, isInQuery, now);
      return;
    }
    this.#parts.metrics.inc(METRIC.key_lookups);
    this.#parts.keys
      .lookup(key)
      .then(
        (found) => {
          if (found) this.#authenticated(exchange, found, isInQuery, now);
          else this.#fail(exchange, { code: 'unauthorized' });
        },
        () => this.#unavailable(exchange, METRIC.unavailable_keys),
      )
      .catch((error: unknown) => this.#unexpected(exchange, error));
  }

  #handleOtherMethod(exchange: Exchange): void {
    const { request, response, traceId } = exchange;
    if (request.method === 'OPTIONS' && request.headers.origin !== undefined) {
      this.#settle(exchange, 204);
      sendPreflight(response, traceId);
      return;
    }
    this.#fail(exchange, { code: 'method_not_allowed', headers: ['Allow', 'POST, OPTIONS'] });
  }

  #authenticated(exchange: Exchange, key: ApiKey, keyIsInQuery: boolean, now: number): void {
    const { environment, keyUsage } = this.#parts;
    // A secret key in an address ends up in logs and histories: it is not taken from there.
    if (!isUsable(key, now, environment) || (keyIsInQuery && key.kind !== 'publishable')) {
      this.#fail(exchange, { code: 'unauthorized' });
      return;
    }
    const { origin } = exchange.request.headers;
    const leaked = key.kind === 'secret' && isForeignOrigin(origin, exchange.request.headers.host);
    keyUsage.note(key.id, now, origin, leaked);
    if (origin !== undefined) {
      const cors = corsFor(key, origin, leaked);
      exchange.cors = cors.allowed;
      if (cors.refused) {
        this.#fail(exchange, { code: 'forbidden', message: `this key may not be used from ${origin}` });
        return;
      }
    }
    const envelope = envelopeOf(exchange.request.headers, keyIsInQuery);
    if (typeof envelope === 'string') this.#unusable(exchange, envelope);
    else if (envelope.declaredBytes > LIMITS.bodyBytesMax) this.#fail(exchange, { code: 'too_large' });
    else this.#admit(exchange, key, envelope);
  }

  #admit(exchange: Exchange, key: ApiKey, envelope: Envelope): void {
    const { refusal, log, inFlight, rateLimits } = this.#parts;
    const waitMs = rateLimits.waitMs(key);
    if (waitMs > 0) {
      this.#overLimit(exchange, key, waitMs);
      return;
    }
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
      try {
        this.#bodyRead(exchange, key, envelope, read);
      } catch (error) {
        this.#unexpected(exchange, error);
      }
    });
  }

  #bodyRead(exchange: Exchange, key: ApiKey, envelope: Envelope, { body, problem }: BodyRead): void {
    if (body === null) {
      if (problem === 'too_large') this.#fail(exchange, { code: 'too_large' });
      else if (problem === 'no_room') this.#unavailable(exchange, METRIC.unavailable_in_flight);
      else if (problem === 'bad_encoding')
        this.#unusable(exchange, 'body cannot be decompressed as Content-Encoding says');
      else exchange.reservation?.release();
      return;
    }
    if (body.length < LARGE_BODY_BYTES) {
      this.#validated(exchange, key, envelope, { body, validation: validateBody(body) });
      return;
    }
    this.#parts.metrics.inc(METRIC.large_bodies);
    this.#parts.largeBodies
      .validate(body)
      .then((validated) => this.#validated(exchange, key, envelope, validated))
      .catch((error: unknown) => this.#unexpected(exchange, error));
  }

  #validated(exchange: Exchange, key: ApiKey, { idempotencyKey }: Envelope, { body, validation }: ValidatedBody): void {
    if (!validation.ok) {
      this.#unusable(exchange, validation.message);
      return;
    }
    // The client is gone and will send it again: it would be stored twice.
    if (exchange.response.destroyed || exchange.response.socket?.writable === false) {
      exchange.reservation?.release();
      return;
    }
    const { userCount, rejections, eventCount, droppedByClient } = validation;
    const waitMs = this.#parts.rateLimits.take(key, userCount);
    if (waitMs > 0) {
      this.#overLimit(exchange, key, waitMs);
      return;
    }
    const bodyBytes = body.byteLength;
    // A client reports the number again until it gets a 202.
    const isReported = droppedByClient !== undefined && rejections.length < userCount;
    this.#parts.log
      .append({
        traceId: exchange.traceId,
        tenantId: tenantOf(key.accountId, key.environment),
        receivedAt: this.#parts.receiptTime(),
        keyId: key.id,
        keyKind: key.kind,
        idempotencyKey,
        body,
        userCount,
        eventCount,
        rejections,
        ...(isReported && { droppedByClient }),
      })
      .then(
        () => {
          const accepted = userCount - rejections.length;
          const { metrics, keyUsage, now } = this.#parts;
          const usersRejected = rejections.length;
          keyUsage.add(key.id, now(), { users: accepted, events: eventCount, usersRejected, requestsLimited: 0 });
          metrics.inc(METRIC.users_accepted, accepted);
          metrics.inc(METRIC.users_rejected, rejections.length);
          metrics.inc(METRIC.events_accepted, eventCount);
          metrics.inc(METRIC.body_bytes, bodyBytes);
          if (accepted === 0) {
            // Kept in the log all the same, so that people can see what was sent and why it failed.
            this.#fail(exchange, { code: 'validation_failed', errors: rejections });
            return;
          }
          this.#settle(exchange, 202);
          if (this.#parts.isLeaving()) exchange.response.shouldKeepAlive = false;
          sendAccepted(exchange.response, exchange.traceId, accepted, rejections, exchange.cors);
        },
        (error: unknown) => {
          if (!(error instanceof LogUnavailableError)) throw error;
          this.#unavailable(exchange, METRIC.unavailable_log);
        },
      )
      .catch((error: unknown) => this.#unexpected(exchange, error));
  }

  #unusable(exchange: Exchange, message: string): void {
    this.#parts.logger.info({ traceId: exchange.traceId, reason: message }, 'request refused as a whole');
    this.#fail(exchange, { code: 'validation_failed', errors: [], message });
  }

  #overLimit(exchange: Exchange, key: ApiKey, waitMs: number): void {
    const { keyUsage, metrics, now } = this.#parts;
    keyUsage.add(key.id, now(), ONE_LIMITED);
    metrics.inc(METRIC.unavailable_rate_limit);
    this.#fail(exchange, { code: 'unavailable', message: overLimitText(key), retryAfterMs: waitMs });
  }

  #unavailable(exchange: Exchange, metric: CounterIndex): void {
    this.#parts.metrics.inc(metric);
    this.#fail(exchange, { code: 'unavailable' });
  }

  /** A bug. The client gets a retryable error, the operator a log line, and the server keeps running. */
  #unexpected(exchange: Exchange, error: unknown): void {
    this.#parts.logger.error({ traceId: exchange.traceId, err: error }, 'request failed unexpectedly');
    exchange.reservation?.release();
    if (exchange.response.headersSent) exchange.request.destroy();
    else this.#fail(exchange, { code: 'unavailable' });
  }

  #fail(exchange: Exchange, failure: Failure): void {
    const { request, response, traceId, cors } = exchange;
    this.#settle(exchange, ERRORS[failure.code].status);
    if (this.#parts.isLeaving()) response.shouldKeepAlive = false;
    if (!request.complete) stopUnwantedBody(request);
    sendFailure(response, traceId, failure, cors);
  }

  #settle(exchange: Exchange, status: number): void {
    exchange.reservation?.release();
    const { metrics } = this.#parts;
    const counter = REQUESTS_BY_STATUS.get(status);
    if (counter !== undefined) metrics.inc(counter);
    metrics.observe(METRIC.request_duration, (performance.now() - exchange.startedAt) / 1000);
  }
}
