/**
 * Whether a rejected user is valid once it is fixed: by a patch, or by hand. The rules are those of the edge; this is the
 * one place where a user that did not come through ingest is validated. What came as a message of Segment's SDKs is fixed
 * as such, and becomes a user as it would have at the edge. Pure.
 *
 * Limits: what such a message took from its request is gone: the context of the batch, its `sentAt`, and the type that a
 * route of single messages gives.
 */

import { convertMessage } from '../intake/segment-message.ts';
import { userOf } from '../intake/segment.ts';
import type { OpenPlan } from '../keys/open-plans.ts';
import { parseExact } from '../json/exact-numbers.ts';
import { parseJson } from '../json/parse.ts';
import type { LogRecord } from '../log.ts';
import type { Format, KeyKind, TenantId } from '../model.ts';
import type { JsonText } from '../store.ts';
import { isObject } from '../validation/shape.ts';
import type { UserCheck } from '../validation/validate-request.ts';
import { firstViolation } from '../validation/validate-user.ts';
import { type Patch, patched } from './patch.ts';

export type FixedUserResult =
  | { readonly status: 'valid'; readonly user: JsonText; readonly events: number }
  | { readonly status: 'still_rejected'; readonly message: string };

interface SentAs {
  readonly format: Format;
  readonly receivedAt: number;
}

export function fixUser(payload: JsonText, patch: Patch, sentAs: SentAs, check?: UserCheck): FixedUserResult {
  const result = patched(payload, patch);
  return 'message' in result
    ? { status: 'still_rejected', message: result.message }
    : fixedByHand(result.user, sentAs, check);
}

/** The corrected user, or the corrected message of one that was sent as a message. */
export function fixedByHand(given: JsonText, { format, receivedAt }: SentAs, check?: UserCheck): FixedUserResult {
  if (format === 'sluice') return validateUser(given, check);
  const value = parseExact(given);
  if (isObject(value) && Object.hasOwn(value, 'identifiers')) return validateUser(given, check);
  const frame = { type: null, receivedAt, sentAt: undefined, context: {}, integrations: {} };
  const converted = convertMessage(value, frame);
  if (typeof converted === 'string') return { status: 'still_rejected', message: converted };
  return validateUser(JSON.stringify(userOf(converted)), check);
}

/** `user` in our own form, as JSON text, whose numbers keep their digits. */
export function validateUser(user: JsonText, check?: UserCheck): FixedUserResult {
  const value = parseJson(user);
  const message = firstViolation(value) ?? check?.(value) ?? null;
  if (message !== null) return { status: 'still_rejected', message };
  const { events } = value as { events: readonly unknown[] };
  return { status: 'valid', user: JSON.stringify(parseExact(user)), events: events.length };
}

/**
 * What the tracking plan that is the newest now enforces for users that are resubmitted, as for requests. If this version
 * of Sluice cannot use it, users stay rejected, with a message that says so, and the job continues. Requests are accepted
 * unchecked then (plans/unusable-plan.ts), since their clients cannot wait; what is resubmitted can.
 */
export function enforcedBy(newest: OpenPlan | undefined): UserCheck | undefined {
  if (newest === undefined) return undefined;
  const { version, enforces, plan } = newest;
  if (plan !== null) return plan.enforced;
  const unusable = `version ${version} of the tracking plan cannot be used by this version of Sluice: push a plan that is valid`;
  return enforces ? () => unusable : undefined;
}

/** What is kept of the request of a rejected user. */
interface RejectedRequest {
  readonly traceId: string;
  readonly receivedAt: number;
  readonly keyId: string;
  readonly keyKind: KeyKind;
  /** Null for our own as well. */
  readonly format: Format | null;
}

/**
 * A fixed user as a log record of its own, for the processor and for a dry run: with the trace_id, userIndex, key and
 * time of receipt of its request.
 */
export function resubmittedRecord(
  tenantId: TenantId,
  { traceId, receivedAt, keyId, keyKind, format }: RejectedRequest,
  userIndex: number,
  { user, events }: Pick<FixedUserResult & { readonly status: 'valid' }, 'user' | 'events'>,
): LogRecord {
  return {
    partition: 0,
    position: 0,
    firstUserIndex: userIndex,
    tenantId,
    traceId,
    receivedAt,
    keyId,
    keyKind,
    // A retry of the request is still a duplicate of it; this user was in neither.
    idempotencyKey: null,
    ...(format !== null && format !== 'sluice' && { format }),
    body: Buffer.from(`{"users":[${user}]}`),
    userCount: 1,
    eventCount: events,
    rejections: [],
  };
}
