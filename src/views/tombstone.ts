/**
 * What remains of an erased match key (rule 17): a hash that recognises late data and does not reveal the value. It
 * includes the tenant, so equal values of two tenants have different hashes.
 */

import { hash } from 'node:crypto';
import type { NormalisedKey, TenantId } from '../model.ts';

/** SHA-256. JSON keeps the three parts apart, whatever characters they hold. */
export function tombstoneOf(tenantId: TenantId, { type, value }: NormalisedKey): Uint8Array {
  return hash('sha256', JSON.stringify([tenantId, type, value]), 'buffer');
}
