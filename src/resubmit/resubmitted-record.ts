/**
 * A fixed user as a log record of its own, for the processor and for a dry run: with the trace_id, userIndex, key and
 * time of receipt of its request. Pure.
 */

import type { LogRecord } from '../log.ts';
import type { ForeignFormat, KeyKind, TenantId } from '../model.ts';
import type { FixedUserResult } from './fixed-user.ts';

/** What is kept of the request of a rejected user. */
interface RejectedRequest {
  readonly traceId: string;
  readonly receivedAt: number;
  readonly keyId: string;
  readonly keyKind: KeyKind;
  /** Null for our own. */
  readonly format: ForeignFormat | null;
}

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
    ...(format !== null && { format }),
    body: Buffer.from(`{"users":[${user}]}`),
    userCount: 1,
    eventCount: events,
    rejections: [],
  };
}
