/**
 * `POST /ingest/events`. The order of checks is part of the contract: method, key (401), origin (403), content type
 * and encoding (400), size (413), rate limit, availability and memory (503), JSON (400), tracking plan, users. The rate
 * limit counts users, so it is checked again once they are known. What does not depend on the format of a body is in `request-intake.ts`.
 */

import type { ApiKey } from '../keys.ts';
import type { Rejection } from '../model.ts';
import { type Envelope, envelopeOf, keyOf } from './request-headers.ts';
import { type Exchange, RequestIntake } from './request-intake.ts';
import { acceptedBody, type Failure, send, sendFailure, sendPreflight } from './responses.ts';
import type { ValidatedBody } from './validate-body.ts';

const VALIDATE = { kind: 'validate' } as const;

export class Ingest extends RequestIntake<Rejection> {
  protected override readonly unavailableCode = 'unavailable';
  protected override readonly overLimitCode = 'unavailable';

  protected override begin(exchange: Exchange): void {
    const { request } = exchange;
    if (request.method !== 'POST') {
      this.#handleOtherMethod(exchange);
      return;
    }
    const given = keyOf(request.headers.authorization, request.url ?? '');
    this.authenticate(exchange, given, (key) => {
      const envelope = envelopeOf(request.headers, given?.isInUrl === true);
      this.receive(exchange, key, envelope, (body) => {
        this.withPlan(exchange, key, (plan) => {
          this.process(exchange, VALIDATE, body, plan, (validated) =>
            this.onValidated(exchange, key, envelope as Envelope, validated),
          );
        });
      });
    });
  }

  #handleOtherMethod(exchange: Exchange): void {
    const { request, response, traceId } = exchange;
    if (request.method === 'OPTIONS' && request.headers.origin !== undefined) {
      this.finish(exchange, 204);
      sendPreflight(response, traceId);
      return;
    }
    this.fail(exchange, { code: 'method_not_allowed', headers: ['Allow', 'POST, OPTIONS'] });
  }

  protected onValidated(
    exchange: Exchange,
    key: ApiKey,
    { idempotencyKey }: Envelope,
    { body, validation }: ValidatedBody,
  ): void {
    if (!validation.ok) {
      this.respondInvalid(exchange, validation.message);
      return;
    }
    const { userCount, rejections, eventCount, droppedByClient } = validation;
    const accepted = userCount - rejections.length;
    const content = { idempotencyKey, body, userCount, eventCount, rejections };
    // A client reports the number again until it gets a 202.
    const isReported = droppedByClient !== undefined && accepted > 0;
    this.append(exchange, key, isReported ? { ...content, droppedByClient } : content, userCount, () => {
      if (accepted === 0) {
        // Kept in the log all the same, so that people can see what was sent and why it failed.
        this.fail(exchange, { code: 'validation_failed', errors: rejections });
        return;
      }
      this.finish(exchange, 202);
      const { response, traceId, allowOrigin } = exchange;
      send(response, 202, traceId, acceptedBody(traceId, accepted, rejections), allowOrigin);
    });
  }

  protected override sendFailure({ response, traceId, allowOrigin }: Exchange, failure: Failure): void {
    sendFailure(response, traceId, failure, allowOrigin);
  }
}
