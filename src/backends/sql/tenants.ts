/**
 * Tenants as they are read, and how many profiles each has.
 */

import type { TenantId } from '../../model.ts';
import type { StoreQueries } from './store-tables.ts';

/** All that ever sent anything. */
export async function listTenants({ tables }: StoreQueries): Promise<TenantId[]> {
  const rows = await tables.selectFrom('tenants').select('id').orderBy('no').execute();
  return rows.map(({ id }) => id);
}

export async function countProfiles({ tables }: StoreQueries, tenant: number): Promise<number> {
  const row = await tables
    .selectFrom('profile_counts')
    .select((counts) => counts.fn.sum<number | null>('profiles').as('profiles'))
    .where('tenant', '=', tenant)
    .executeTakeFirst();
  return row?.profiles ?? 0;
}
