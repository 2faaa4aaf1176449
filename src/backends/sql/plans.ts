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
import { changedBy, rowsOf, type Steps } from './steps.ts';

const VERSION_COLUMNS = ['version', 'created_at as createdAt', 'created_by as createdBy', 'enforces', 'warns'] as const;

export class SqlPlanStore implements PlanStore {
  readonly #database: SqlDatabase;

  constructor(database: SqlDatabase) {
    this.#database = database;
  }

  find(tenant: PlanTenant, version?: number): Promise<StoredPlan | undefined> {
    return this.#database.read((tables) => findPlan(tables, tenant, version));
  }

  async versions(tenant: PlanTenant): Promise<PlanVersion[]> {
    const rows = await this.#database.read((tables) => rowsOf(plansOf(tables, tenant).select(VERSION_COLUMNS)));
    return rows.map(toVersion);
  }

  push(tenant: PlanTenant, { basedOn, ...plan }: NewPlan): Promise<PushedPlan> {
    return this.#database.change(function* (tables, locks) {
      const account = tables.selectFrom('accounts').select('id').where('id', '=', tenant.accountId);
      yield* rowsOf(locks.lock(account));
      const newest = yield* findPlan(tables, tenant);
      if (basedOn !== null && basedOn !== (newest?.version ?? 0)) {
        return { newest: withoutText(newest), isNew: false, isConflict: true };
      }
      if (newest?.text === plan.text) return { newest: withoutText(newest), isNew: false, isConflict: false };
      const version = (newest?.version ?? 0) + 1;
      const row = {
        account_id: tenant.accountId,
        environment: tenant.environment,
        version,
        created_at: plan.createdAt,
        created_by: plan.createdBy,
        enforces: plan.enforces ? 1 : 0,
        warns: plan.warns ? 1 : 0,
        plan: plan.text,
      };
      yield* changedBy(tables.insertInto('plans').values(row));
      const old = tables
        .deleteFrom('plans')
        .where('account_id', '=', tenant.accountId)
        .where('environment', '=', tenant.environment)
        .where('version', '<=', version - PLAN_VERSIONS_MAX);
      yield* changedBy(old);
      return { newest: withoutText({ ...plan, version }), isNew: true, isConflict: false };
    });
  }

  warning(): Promise<(PlanTenant & { readonly version: number })[]> {
    return this.#database.read((tables) =>
      rowsOf(
        tables
          .selectFrom('plans')
          .where('plans.warns', '=', 1)
          .where('plans.version', '=', (newest) =>
            newest
              .selectFrom('plans as others')
              .select((row) => row.fn.max<number>('others.version').as('version'))
              .whereRef('others.account_id', '=', 'plans.account_id')
              .whereRef('others.environment', '=', 'plans.environment'),
          )
          .select(['plans.account_id as accountId', 'plans.environment', 'plans.version']),
      ),
    );
  }
}

function plansOf(tables: Kysely<AccountTables>, { accountId, environment }: PlanTenant) {
  return tables
    .selectFrom('plans')
    .where('account_id', '=', accountId)
    .where('environment', '=', environment)
    .orderBy('version', 'desc');
}

function* findPlan(tables: Kysely<AccountTables>, tenant: PlanTenant, version?: number): Steps<StoredPlan | undefined> {
  const all = plansOf(tables, tenant).select(VERSION_COLUMNS).select('plan as text').limit(1);
  const [row] = yield* rowsOf(version === undefined ? all : all.where('version', '=', version));
  return row && { ...toVersion(row), text: row.text };
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
