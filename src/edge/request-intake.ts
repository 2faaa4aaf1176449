/**
 * What every request with events goes through, whatever its format: key (401), origin (403), size (413), rate limit and
 * admission, body (400), log. `ingest.ts` is our own format, `segment-intake.ts` that of Segment's SDKs; they say where
 * the key is, what the body means and how to respond.
 *
 * Invariant: success is sent only after the log says that the entry is durable. Each request gets exactly one response,
 * and its reservation is given back exactly once, whatever happens in between.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { type ErrorCode, ERRORS, messageWithCause } from '../errors.ts';
import type { MatchOptions } from '../identity/match-keys.ts';
import { isUsable, type KeyCache } from '../keys/cache.ts';
import type { ApiKey, KeyVolume } from '../keys.ts';
import type { OpenPlans } from '../keys/open-plans.ts';
import { type LogAppender, type LogEntry, LogUnavailableError } from '../log.ts';
import { type Environment, LIMITS, tenantOf } from '../model.ts';
import type { CompiledPlan } from '../plans/compiled-plan.ts';
import type { Prediction } from '../store.ts';
import { type CounterIndex, METRIC, type MetricsWriter, REQUESTS_BY_STATUS } from '../telemetry/metrics.ts';
import type { RateLimitedLogger } from '../telemetry/logger.ts';
import type { InFlight, Reservation } from './admission.ts';
import { type BodyProblem, readBody } from './body.ts';
import type { KeyUsageTracker } from './key-usage.ts';
import { overLimitText, type RateLimits } from './rate-limits.ts';
import { corsFor, type Envelope, type GivenKey, isForeignOrigin } from './request-headers.ts';
import { type Failure, limitUnwantedBody } from './responses.ts';
import {
  type BodyResult,
  type BodyTask,
  type LargeBodyValidator,
  runTask,
  VALIDATOR_THREAD_BYTES_MIN,
} from './validate-body.ts';

/** What the processor would make of a request, if it were appended now. */
export type Predict = (entry: LogEntry) => Promise<Prediction>;

/** What all intakes are made of; each uses what it needs. */
export interface IntakeParts {
  readonly log: LogAppender;
  readonly predict: Predict;
  readonly keys: KeyCache;
  readonly keyUsage: KeyUsageTracker;
  readonly plans: OpenPlans;
  readonly rateLimits: RateLimits;
  readonly inFlight: InFlight;
  readonly largeBodies: LargeBodyValidator;
  readonly metrics: MetricsWriter;
  readonly logger: RateLimitedLogger;
  readonly environment: 'any' | Environment;
  readonly matchOptions: MatchOptions;
  /** SLUICE_PUBLIC_URL; empty when it is not known. */
  readonly publicUrl: string;
  /** The wall clock, for keys and sessions. */
  readonly now: () => number;
  /** The clock that never goes back (`clock/clock.ts`), for what is stored. */
  readonly receiptTime: () => number;
  readonly newTraceId: () => string;
  /** The counter of why requests get 503 now, apart from the log and the memory; null if they do not. */
  readonly unavailable: () => CounterIndex | null;
  /** Whether connections are to end with their next response. */
  readonly isStopping: () => boolean;
}

/** What is counted for a request that was over its rate limit. */
const ONE_LIMITED_REQUEST: KeyVolume = { users: 0, events: 0, usersRejected: 0, requestsLimited: 1 };

export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly traceId: string;
  readonly startedAt: number;
  /** The client waits for `100 Continue` before it sends the body. */
  readonly expectsContinue: boolean;
  allowOrigin: string | null;
  reservation: Reservation | null;
}

/** A log entry without what the key and the clock give. */
type Content = Omit<LogEntry, 'traceId' | 'tenantId' | 'receivedAt' | 'keyId' | 'keyKind'>;

/** `Item`: what an error response lists for each invalid user or message. */
export abstract class RequestIntake<Item> {
  protected readonly parts: IntakeParts;
  protected abstract readonly unavailableCode: ErrorCode;
  protected abstract readonly overLimitCode: ErrorCode;
  /** For a key that was sent, and may not be used here. */
  protected readonly invalidKey: Failure<Item> = { code: 'unauthorized' };

  constructor(parts: IntakeParts) {
    this.parts = parts;
  }

  protected abstract begin(exchange: Exchange): void;
  protected abstract sendFailure(exchange: Exchange, failure: Failure<Item>): void;

  handle(request: IncomingMessage, response: ServerResponse, expectsContinue = false): void {
    const exchange: Exchange = {
      request,
      response,
      traceId: this.parts.newTraceId(),
      startedAt: performance.now(),
      expectsContinue,
      allowOrigin: request.headers.origin === undefined ? null : '*',
      reservation: null,
    };
    try {
      this.begin(exchange);
    } catch (error) {
      this.respondToBug(exchange, error);
    }
  }

  /** Calls back with the key if it may be used here; responds otherwise. */
  protected authenticate(exchange: Exchange, given: GivenKey | undefined, use: (key: ApiKey) => void): void {
    if (given === undefined) {
      this.fail(exchange, { code: 'unauthorized' });
      return;
    }
    const { keys } = this.parts;
    const known = keys.peek(given.key);
    if (known) {
      this.#authenticated(exchange, known, given, use);
      return;
    }
    keys
      .lookup(given.key)
      .then(
        (found) => {
          if (found) this.#authenticated(exchange, found, given, use);
          else this.fail(exchange, this.invalidKey);
        },
        () => this.#respondUnavailable(exchange, METRIC.unavailable_keys),
      )
      .catch((error: unknown) => this.respondToBug(exchange, error));
  }

  #authenticated(exchange: Exchange, key: ApiKey, { isInUrl }: GivenKey, use: (key: ApiKey) => void): void {
    const { environment, keyUsage } = this.parts;
    const now = this.parts.now();
    if (!isUsable(key, now, environment) || (isInUrl && key.kind !== 'publishable')) {
      this.fail(exchange, this.invalidKey);
      return;
    }
    const { origin, host } = exchange.request.headers;
    const leaked = key.kind === 'secret' && isForeignOrigin(origin, host);
    keyUsage.note(key.id, now, origin, leaked);
    if (origin !== undefined) {
      const cors = corsFor(key, origin, leaked);
      exchange.allowOrigin = cors.allowed;
      if (cors.refused) {
        this.fail(exchange, { code: 'forbidden', message: `this key may not be used from ${origin}` });
        return;
      }
    }
    use(key);
  }

  /** Calls back with the body once it is there; responds otherwise. `key` is null where only the body has it. */
  protected receive(
    exchange: Exchange,
    key: ApiKey | null,
    envelope: Envelope | string,
    use: (body: Buffer) => void,
  ): void {
    if (typeof envelope === 'string') {
      this.respondInvalid(exchange, envelope);
      return;
    }
    if (envelope.declaredBytes > LIMITS.bodyBytesMax) {
      this.fail(exchange, { code: 'too_large' });
      return;
    }
    const { log, inFlight } = this.parts;
    // Before the body is sent; `append` takes the tokens.
    if (key !== null && this.respondIfOverLimit(exchange, key, 0)) return;
    const unavailable = this.parts.unavailable() ?? (log.problem() === null ? null : METRIC.unavailable_log);
    if (unavailable !== null) {
      this.#respondUnavailable(exchange, unavailable);
      return;
    }
    const reservation = inFlight.open(envelope.declaredBytes);
    if (!reservation) {
      this.#respondUnavailable(exchange, METRIC.unavailable_in_flight);
      return;
    }
    exchange.reservation = reservation;
    if (exchange.expectsContinue) exchange.response.writeContinue();
    readBody(exchange.request, envelope, reservation, (read) => {
      try {
        if (typeof read === 'string') this.#notRead(exchange, read);
        else use(read);
      } catch (error) {
        this.respondToBug(exchange, error);
      }
    });
  }

  #notRead(exchange: Exchange, problem: BodyProblem): void {
    if (problem === 'too_large') this.fail(exchange, { code: 'too_large' });
    else if (problem === 'no_room') this.#respondUnavailable(exchange, METRIC.unavailable_in_flight);
    else if (problem === 'bad_encoding')
      this.respondInvalid(exchange, 'body cannot be decompressed with the given Content-Encoding');
    else exchange.reservation?.release();
  }

  /**
   * Calls back with the tracking plan that is enforced for the key: null if there is none, or none that this version
   * can use. Responds if the plan cannot be read from the store.
   */
  protected withPlan(exchange: Exchange, key: ApiKey, use: (plan: CompiledPlan | null) => void): void {
    const { plans, logger } = this.parts;
    const { enforcedPlan: version } = key;
    if (version === null) {
      use(null);
      return;
    }
    const tenantId = tenantOf(key.accountId, key.environment);
    const known = plans.peek(tenantId, version);
    if (known !== undefined) {
      use(known.plan);
      return;
    }
    plans
      .open(tenantId, version)
      .then(
        ({ plan }) => use(plan),
        (error: unknown) => {
          logger.error({ reason: messageWithCause(error) }, 'a tracking plan cannot be read');
          this.#respondUnavailable(exchange, METRIC.unavailable_keys);
        },
      )
      .catch((error: unknown) => this.respondToBug(exchange, error));
  }

  /** Calls back with the result: for a small body at once, for a large one when the validator thread is done. */
  protected process<Task extends BodyTask>(
    exchange: Exchange,
    task: Task,
    body: Uint8Array,
    plan: CompiledPlan | null,
    use: (result: BodyResult<Task>) => void,
  ): void {
    if (body.length < VALIDATOR_THREAD_BYTES_MIN) {
      use(runTask(task, body, plan));
      return;
    }
    this.parts.largeBodies
      .run(task, body, plan)
      .then(use)
      .catch((error: unknown) => this.respondToBug(exchange, error));
  }

  /** Reserves memory for a body that grew; false if there is none, and then it has responded. */
  protected growOrRespond(exchange: Exchange, bytes: number): boolean {
    if (exchange.reservation?.growTo(bytes) !== false) return true;
    this.#respondUnavailable(exchange, METRIC.unavailable_in_flight);
    return false;
  }

  /** Takes `tokens` from the key's token bucket; true if it is empty, and then it has responded. */
  protected respondIfOverLimit(exchange: Exchange, key: ApiKey, tokens: number): boolean {
    const retryAfterMs = this.parts.rateLimits.take(key, tokens);
    if (retryAfterMs === 0) return false;
    this.countOverLimit(key);
    this.fail(exchange, { code: this.overLimitCode, message: overLimitText(key), retryAfterMs });
    return true;
  }

  protected countOverLimit(key: ApiKey): void {
    const { keyUsage, metrics, now } = this.parts;
    keyUsage.add(key.id, now(), ONE_LIMITED_REQUEST);
    metrics.inc(METRIC.unavailable_rate_limit);
  }

  protected entryOf(exchange: Exchange, key: ApiKey, content: Content): LogEntry {
    return {
      ...content,
      traceId: exchange.traceId,
      tenantId: tenantOf(key.accountId, key.environment),
      receivedAt: this.parts.receiptTime(),
      keyId: key.id,
      keyKind: key.kind,
    };
  }

  /** Charges the rate limit, appends, and calls `respond` once durable. Sends the error itself. */
  protected append(exchange: Exchange, key: ApiKey, content: Content, tokens: number, respond: () => void): void {
    // The client is gone and will send it again: it would be stored twice.
    if (exchange.response.destroyed || exchange.response.socket?.writable === false) {
      exchange.reservation?.release();
      return;
    }
    const { userCount, eventCount, rejections } = content;
    if (this.respondIfOverLimit(exchange, key, tokens)) return;
    const bodyBytes = content.body.byteLength;
    const { log, inFlight } = this.parts;
    const durable = log.append(this.entryOf(exchange, key, content));
    inFlight.appending += 1;
    durable
      .then(
        () => {
          inFlight.appending -= 1;
          const { metrics, keyUsage, now } = this.parts;
          const usersRejected = rejections.length;
          const users = userCount - usersRejected;
          keyUsage.add(key.id, now(), { users, events: eventCount, usersRejected, requestsLimited: 0 });
          metrics.inc(METRIC.users_accepted, users);
          metrics.inc(METRIC.users_rejected, usersRejected);
          metrics.inc(METRIC.events_accepted, eventCount);
          metrics.inc(METRIC.body_bytes, bodyBytes);
          respond();
        },
        (error: unknown) => {
          inFlight.appending -= 1;
          if (!(error instanceof LogUnavailableError)) throw error;
          this.#respondUnavailable(exchange, METRIC.unavailable_log);
        },
      )
      .catch((error: unknown) => this.respondToBug(exchange, error));
  }

  protected respondInvalid(exchange: Exchange, message: string): void {
    this.parts.logger.info({ traceId: exchange.traceId, reason: message }, 'request rejected');
    this.fail(exchange, { code: 'validation_failed', errors: [], message });
  }

  #respondUnavailable(exchange: Exchange, metric: CounterIndex): void {
    this.parts.metrics.inc(metric);
    this.fail(exchange, { code: this.unavailableCode });
  }

  /** A bug. The client gets a retryable error, the operator a log line, and the server keeps running. */
  protected respondToBug(exchange: Exchange, error: unknown): void {
    this.parts.logger.error({ traceId: exchange.traceId, err: error }, 'request failed unexpectedly');
    this.parts.metrics.inc(METRIC.internal_errors);
    exchange.reservation?.release();
    if (exchange.response.headersSent) exchange.request.destroy();
    else this.fail(exchange, { code: this.unavailableCode });
  }

  protected fail(exchange: Exchange, failure: Failure<Item>): void {
    const { request } = exchange;
    this.finish(exchange, ERRORS[failure.code].status);
    if (!request.complete) limitUnwantedBody(request);
    this.sendFailure(exchange, failure);
  }

  /** Call it right before a response: releases the reservation, and records the metrics. */
  protected finish(exchange: Exchange, status: number): void {
    exchange.reservation?.release();
    if (this.parts.isStopping()) exchange.response.shouldKeepAlive = false;
    const { metrics } = this.parts;
    const counter = REQUESTS_BY_STATUS.get(status);
    if (counter !== undefined) metrics.inc(counter);
    metrics.observe(METRIC.request_duration, (performance.now() - exchange.startedAt) / 1000);
  }
}
