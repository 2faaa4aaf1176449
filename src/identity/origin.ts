/**
 * The one order of everything: by time of receipt, then trace, then index in the request. Roots (rule 9) and last
 * writes (rule 11) are decided by it and by nothing else, so they do not depend on the order of processing. Trace ids
 * are compared by code unit, never by locale.
 */

import type { Origin } from '../model.ts';

/** Negative if `a` is older, positive if it is newer, 0 for the same origin. */
export function compareOrigins(a: Origin, b: Origin): number {
  if (a.receivedAt !== b.receivedAt) return a.receivedAt - b.receivedAt;
  if (a.traceId !== b.traceId) return a.traceId < b.traceId ? -1 : 1;
  return a.userIndex - b.userIndex;
}
