/**
 * Public ids of nodes (rule 10): derived from the tenant, the trace and the index in the request, never from an
 * identifier, so that a replay gives the same ids and an id reveals nothing about a person. A UUID of version 8: 48 bits of
 * received_at in milliseconds, then SHA-256, so ids sort by creation to the millisecond.
 */

import { hash } from 'node:crypto';
import type { Origin } from '../model.ts';

/** The largest time that fits: in the year 10889. */
const TIME_MAX_MS = 2 ** 48 - 1;

export function nodeIdOf(tenantId: string, origin: Origin): string {
  const milliseconds = Math.min(Math.max(Math.trunc(origin.receivedAt), 0), TIME_MAX_MS);
  const time = milliseconds.toString(16).padStart(12, '0');
  // As JSON, so that no two different triples are hashed as the same text.
  const digest = hash('sha256', JSON.stringify([tenantId, origin.traceId, origin.userIndex]), 'hex');
  const variant = (8 + (Number.parseInt(digest.slice(3, 4), 16) & 3)).toString(16);
  return `${time.slice(0, 8)}-${time.slice(8)}-8${digest.slice(0, 3)}-${variant}${digest.slice(4, 7)}-${digest.slice(7, 19)}`;
}
