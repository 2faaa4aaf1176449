/**
 * Whether a key works: the dashboard, the API and the command line all use this. Revoked wins over expired.
 */

import type { ApiKey } from '../keys.ts';

export type KeyState = 'active' | 'expired' | 'revoked';

export function keyState({ revokedAt, expiresAt }: Pick<ApiKey, 'revokedAt' | 'expiresAt'>, now: number): KeyState {
  if (revokedAt !== null) return 'revoked';
  return expiresAt !== null && expiresAt <= now ? 'expired' : 'active';
}
