/**
 * Whether a rejected user is valid once it is fixed: by a patch, or by hand. The rules are those of the edge; this is the
 * one place where a user that did not come through ingest is validated. Pure.
 */

import { parseExact } from '../json/exact-numbers.ts';
import { parseJson } from '../json/parse.ts';
import type { JsonText } from '../store.ts';
import { firstViolation } from '../validation/validate-user.ts';
import { type Patch, patched } from './patch.ts';

export type FixedUserResult =
  | { readonly status: 'valid'; readonly user: JsonText; readonly events: number }
  | { readonly status: 'still_rejected'; readonly message: string };

export function fixUser(payload: JsonText, patch: Patch): FixedUserResult {
  const result = patched(payload, patch);
  return 'message' in result ? { status: 'still_rejected', message: result.message } : validateUser(result.user);
}

/** `user` as JSON text, whose numbers keep their digits. */
export function validateUser(user: JsonText): FixedUserResult {
  const value = parseJson(user);
  const message = firstViolation(value);
  if (message !== null) return { status: 'still_rejected', message };
  const { events } = value as { events: readonly unknown[] };
  return { status: 'valid', user: JSON.stringify(parseExact(user)), events: events.length };
}
