/**
 * What is left of an erased match key (rule 17): a hash, by which late data is recognised and from which no one can read
 * the value. The tenant goes into it, so equal values of two tenants have different hashes.
 */

import { hash } from 'node:crypto';
import type { MatchKey, TenantId } from '../model.ts';

/** SHA-256. JSON keeps the three parts apart, whatever characters they hold. */
export function tombstoneOf(tenantId: TenantId, { type, value }: Pick<MatchKey, 'type' | 'value'>): Uint8Array {
  return hash('sha256', JSON.stringify([tenantId, type, value]), 'buffer');
}
