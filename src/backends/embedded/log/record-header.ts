/**
 * The header of a record in a segment: a JSON array on one line, with everything that is known of a request but its body.
 * The edge encodes what it knows; the writer adds the position, the commit and the time. Pure.
 */

import { LOCAL_PARTITION, type LogEntry, type LogHeader } from '../../../log.ts';
import type { ForeignFormat, KeyKind, Rejection } from '../../../model.ts';

/** The values of a header, in order. */
export const COLUMNS = [
  'position',
  // The first position of the commit that it was written in: a crash can only cut the last commit short.
  'commit',
  'received_at',
  'trace_id',
  'tenant_id',
  'key_id',
  'key_kind',
  'idempotency_key',
  'user_count',
  'event_count',
  'rejections',
  'format',
  'dropped_by_client',
] as const;

type HeaderValues = [
  position: number,
  commit: number,
  receivedAt: number,
  traceId: string,
  tenantId: string,
  keyId: string,
  keyKind: KeyKind,
  idempotencyKey: string | null,
  userCount: number,
  eventCount: number,
  rejections: Rejection[] | null,
  format: ForeignFormat | null,
  droppedByClient: number | null,
];

/** The values from `trace_id` on, as JSON, with the bracket that ends a header. */
export function encodeEntry(entry: LogEntry): string {
  const values = [
    entry.traceId,
    entry.tenantId,
    entry.keyId,
    entry.keyKind,
    entry.idempotencyKey,
    entry.userCount,
    entry.eventCount,
    entry.rejections.length === 0 ? null : entry.rejections,
    entry.format ?? null,
    entry.droppedByClient ?? null,
  ];
  return JSON.stringify(values).slice(1);
}

export function encodeHeader(position: number, commit: number, receivedAt: number, encodedEntry: string): string {
  return `[${position},${commit},${receivedAt},${encodedEntry}`;
}

export interface DecodedHeader {
  readonly commit: number;
  readonly header: LogHeader;
}

/** Undefined if it is not the header of a record. The message of JSON.parse would quote what a client sent. */
export function decodeHeader(text: string): DecodedHeader | undefined {
  let values: unknown;
  try {
    values = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!Array.isArray(values) || values.length !== COLUMNS.length) return undefined;
  const [position, commit, receivedAt, traceId, tenantId, keyId, keyKind, idempotencyKey, ...counts] =
    values as HeaderValues;
  const [userCount, eventCount, rejections, format, droppedByClient] = counts;
  const header = {
    partition: LOCAL_PARTITION,
    position,
    firstUserIndex: 0,
    traceId,
    tenantId,
    receivedAt,
    keyId,
    keyKind,
    idempotencyKey,
    userCount,
    eventCount,
    rejections: rejections ?? [],
  };
  if (format === null && droppedByClient === null) return { commit, header };
  return {
    commit,
    header: { ...header, ...(format !== null && { format }), ...(droppedByClient !== null && { droppedByClient }) },
  };
}
