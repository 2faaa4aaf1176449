/**
 * Tracking plans, the `PlanStore` on SQLite and on PostgreSQL: one row for each version. Two pushes at once get two
 * versions, one after the other: the account's row is locked meanwhile.
 */

import {
  type NewPlan,
  PLAN_VERSIONS_MAX,
  type PlanStore,
  type PlanTenant,
  type PlanVersion,
  type PushedPlan,
  type StoredPlan,
} from '../../plans.ts';
import type { Kysely } from 'kysely';
import type { AccountTables } from './account-tables.ts';
import type { SqlDatabase } from './database.ts';

const VERSION_COLUMNS = ['version', 'created_at as createdAt', 'created_by as createdBy', 'enforces', 'warns'] as const;

export class SqlPlanStore implements PlanStore {
  readonly #database: SqlDatabase<AccountTables>;

  constructor(database: SqlDatabase<AccountTables>) {
    this.#database = database;
  }

  find(tenant: PlanTenant, version?: number): Promise<StoredPlan | undefined> {
    return findPlan(this.#database.reading, tenant, version);
  }

  async versions(tenant: PlanTenant): Promise<PlanVersion[]> {
    const rows = await plansOf(this.#database.reading, tenant).select(VERSION_COLUMNS).execute();
    return rows.map(toVersion);
  }

  push(tenant: PlanTenant, { basedOn, ...plan }: NewPlan): Promise<PushedPlan> {
    return this.#database.change(async (tables) => {
      const account = tables.selectFrom('accounts').select('id').where('id', '=', tenant.accountId);
      await this.#database.locks.lock(account).execute();
      const newest = await findPlan(tables, tenant);
      if (basedOn !== null && basedOn !== (newest?.version ?? 0)) {
        return { newest: withoutText(newest), isNew: false, isConflict: true };
      }
      if (newest?.text === plan.text) return { newest: withoutText(newest), isNew: false, isConflict: false };
      const version = (newest?.version ?? 0) + 1;
      await tables
        .insertInto('plans')
        .values({
          account_id: tenant.accountId,
          environment: tenant.environment,
          version,
          created_at: plan.createdAt,
          created_by: plan.createdBy,
          enforces: plan.enforces ? 1 : 0,
          warns: plan.warns ? 1 : 0,
          plan: plan.text,
        })
        .execute();
      await tables
        .deleteFrom('plans')
        .where('account_id', '=', tenant.accountId)
        .where('environment', '=', tenant.environment)
        .where('version', '<=', version - PLAN_VERSIONS_MAX)
        .execute();
      return { newest: withoutText({ ...plan, version }), isNew: true, isConflict: false };
    });
  }

  warning(): Promise<(PlanTenant & { readonly version: number })[]> {
    return this.#database.reading
      .selectFrom('plans')
      .where('plans.warns', '=', 1)
      .where('plans.version', '=', (newest) =>
        newest
          .selectFrom('plans as others')
          .select((row) => row.fn.max<number>('others.version').as('version'))
          .whereRef('others.account_id', '=', 'plans.account_id')
          .whereRef('others.environment', '=', 'plans.environment'),
      )
      .select(['plans.account_id as accountId', 'plans.environment', 'plans.version'])
      .execute();
  }
}

function plansOf(tables: Kysely<AccountTables>, { accountId, environment }: PlanTenant) {
  return tables
    .selectFrom('plans')
    .where('account_id', '=', accountId)
    .where('environment', '=', environment)
    .orderBy('version', 'desc');
}

async function findPlan(
  tables: Kysely<AccountTables>,
  tenant: PlanTenant,
  version?: number,
): Promise<StoredPlan | undefined> {
  const all = plansOf(tables, tenant).select(VERSION_COLUMNS).select('plan as text').limit(1);
  const row = await (version === undefined ? all : all.where('version', '=', version)).executeTakeFirst();
  return row === undefined ? undefined : { ...toVersion(row), text: row.text };
}

interface VersionRow extends Omit<PlanVersion, 'enforces' | 'warns'> {
  readonly enforces: number;
  readonly warns: number;
}

function toVersion({ version, createdAt, createdBy, enforces, warns }: VersionRow): PlanVersion {
  return { version, createdAt, createdBy, enforces: enforces === 1, warns: warns === 1 };
}

function withoutText(plan: StoredPlan | undefined): PlanVersion | null {
  if (plan === undefined) return null;
  const { text: _text, ...version } = plan;
  return version;
}
