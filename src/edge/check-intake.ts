/**
 * `POST /ingest/events/check`, the dry run: checks key, origin, size and body like `POST /ingest/events`, but appends
 * nothing. It returns the response of that route and, for a secret key, what the processor would do with the request. A
 * publishable key is public, so it gets only the validation: nothing is looked up for it, and neither its response nor
 * its timing depends on what is stored.
 *
 * Invariant: it counts in no ledger, no key's usage and no metric of users and events. It takes its users from the key's
 * rate limit like the route itself: publishable keys are public, and a check costs as much as a request.
 */

import { predictionJson } from '../api/ingest-operation.ts';
import { jsonText, raw } from '../api/responses.ts';
import { ERRORS } from '../errors.ts';
import type { ApiKey } from '../keys.ts';
import type { LogEntry } from '../log.ts';
import { isRetryable } from '../runtime/unavailable.ts';
import { Ingest } from './ingest.ts';
import type { Envelope } from './request-headers.ts';
import type { Exchange } from './request-intake.ts';
import { acceptedBody, failureBody, send } from './responses.ts';
import type { BodyResult, ValidatedBody } from './validate-body.ts';

const FIND_VIOLATIONS = { kind: 'findViolations' } as const;

export class CheckIntake extends Ingest {
  protected override countOverLimit(): void {
    // A dry run counts nowhere.
  }

  protected override onValidated(
    exchange: Exchange,
    key: ApiKey,
    { idempotencyKey }: Envelope,
    { body, validation }: ValidatedBody,
  ): void {
    const { traceId } = exchange;
    if (!validation.ok) {
      const failure = { code: 'validation_failed', errors: [], message: validation.message } as const;
      this.#respond(exchange, ERRORS.validation_failed.status, failureBody(traceId, failure));
      return;
    }
    const { userCount, eventCount, rejections } = validation;
    if (this.respondIfOverLimit(exchange, key, userCount)) return;
    const accepted = userCount - rejections.length;
    const isAccepted = accepted > 0;
    const status = isAccepted ? 202 : ERRORS.validation_failed.status;
    const wouldRespond = isAccepted
      ? acceptedBody(traceId, accepted, rejections)
      : failureBody(traceId, { code: 'validation_failed', errors: rejections });
    if (key.kind !== 'secret') {
      this.#respond(exchange, status, wouldRespond);
      return;
    }
    this.#predict(exchange, this.entryOf(exchange, key, { idempotencyKey, body, userCount, eventCount, rejections }))
      .then(
        (prediction) => this.#respond(exchange, status, wouldRespond, prediction),
        (error: unknown) => this.#notPredicted(exchange, error),
      )
      .catch((error: unknown) => this.respondToBug(exchange, error));
  }

  async #predict(exchange: Exchange, entry: LogEntry): Promise<object> {
    const plan = (await this.parts.plans.newest(entry.tenantId))?.plan ?? null;
    if (plan === null) return predictionJson(await this.parts.predict(entry), null);
    const { promise, resolve } = Promise.withResolvers<BodyResult<typeof FIND_VIOLATIONS>>();
    this.process(exchange, FIND_VIOLATIONS, entry.body, plan, resolve);
    // The memory of the body is with the validator thread until then.
    const { violations, body } = await promise;
    const { version } = plan.source;
    return predictionJson(await this.parts.predict({ ...entry, body }), { version, violations });
  }

  #notPredicted(exchange: Exchange, error: unknown): void {
    if (!isRetryable(error)) throw error;
    this.parts.logger.error({ traceId: exchange.traceId, reason: error.message }, 'a request could not be checked');
    this.fail(exchange, {
      code: this.unavailableCode,
      message: 'the store cannot be read now, so what would happen is not known: try again later',
    });
  }

  /** `prediction`: only for a secret key. */
  #respond(exchange: Exchange, status: number, wouldRespond: string, prediction = {}): void {
    const { response, traceId, allowOrigin } = exchange;
    const body = jsonText({ would_respond: { status, body: raw(wouldRespond) }, ...prediction });
    this.finish(exchange, 200);
    send(response, 200, traceId, body, allowOrigin);
  }
}
