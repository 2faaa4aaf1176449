/**
 * The routes for the SDKs of Segment and RudderStack, with the same checks, log and metrics as `POST /ingest/events`
 * (`request-intake.ts`), and at no cost to that route. A body is converted to our own format (`intake/`), and the
 * converted body is appended.
 *
 * Order of checks: path and method, key where a header or the address has it (401), charset and encoding (400), size
 * (413), rate limit and admission (429), key where only the body has it (401), JSON and messages (400).
 */

import type { MatchOptions } from '../identity/match-keys.ts';
import { type Conversion, type ConvertedRequest, type MessageError, writeKeyOf } from '../intake/segment.ts';
import type { MessageType } from '../intake/segment-message.ts';
import type { ApiKey } from '../keys.ts';
import { envelopeOfAnyType, segmentKeyOf } from './request-headers.ts';
import { type Exchange, type IntakeParts, RequestIntake } from './request-intake.ts';
import { type Failure, send, sendPreflight, limitUnwantedBody } from './responses.ts';
import { INVALID_KEY, SEGMENT_PREFLIGHT, sendSegmentFailure } from './segment-responses.ts';
import { rudderSettings, segmentRouteOf, segmentSettings, serverAddress } from './segment-routes.ts';
import { convertBody, VALIDATOR_THREAD_BYTES_MIN } from './validate-body.ts';

interface SegmentIntakeParts extends IntakeParts {
  readonly matchOptions: MatchOptions;
  /** Where clients reach this server; empty if that is not set. */
  readonly publicUrl: string;
}

export class SegmentIntake extends RequestIntake<MessageError> {
  protected override readonly unavailableCode = 'overloaded';
  protected override readonly overLimitCode = 'rate_limited';
  protected override readonly invalidKey = INVALID_KEY;
  readonly #matchOptions: MatchOptions;
  readonly #publicUrl: string;

  constructor({ matchOptions, publicUrl, ...parts }: SegmentIntakeParts) {
    super(parts);
    this.#matchOptions = matchOptions;
    this.#publicUrl = publicUrl;
  }

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
      const address = serverAddress(this.#publicUrl, request.headers.host);
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
    const found = (writeKey: string | null, bytes: Uint8Array): void => {
      const given = writeKey === null ? undefined : { key: writeKey, isInUrl: false };
      this.authenticate(exchange, given, (key) => this.#convert(exchange, key, type, bytes));
    };
    if (body.length < VALIDATOR_THREAD_BYTES_MIN) {
      found(writeKeyOf(body), body);
      return;
    }
    this.parts.largeBodies
      .findKey(body)
      .then(({ writeKey, body: bytes }) => found(writeKey, bytes))
      .catch((error: unknown) => this.respondToBug(exchange, error));
  }

  #convert(exchange: Exchange, key: ApiKey, type: MessageType | null, body: Uint8Array): void {
    this.withPlan(exchange, key, (plan) => {
      const { receiptTime, largeBodies } = this.parts;
      const options = { type, receivedAt: receiptTime(), matchOptions: this.#matchOptions };
      if (body.length < VALIDATOR_THREAD_BYTES_MIN) {
        this.#converted(exchange, key, convertBody(body, options, plan));
        return;
      }
      largeBodies
        .convert(body, options, plan)
        .then((conversion) => this.#converted(exchange, key, conversion))
        .catch((error: unknown) => this.respondToBug(exchange, error));
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
