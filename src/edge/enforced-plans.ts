/**
 * The tracking plans that an edge enforces. A key names the enforced version of its tenant's plan
 * (`ApiKey.enforcedPlan`), so requests of tenants that enforce nothing never get here. A version never changes: it is
 * read and compiled once, and kept while its tenant is among the `PLANS_MAX` used last. The compiler is loaded with the
 * first plan. A stored plan that this version cannot read enforces nothing.
 */

import type { ApiKey } from '../keys.ts';
import { tenantOf } from '../model.ts';
import type { PlanStore } from '../plans.ts';
import { UNUSABLE_PLAN, UnusablePlanError } from '../plans/unusable-plan.ts';
import { putLast } from '../runtime/put-last.ts';
import type { RateLimitedLogger } from '../telemetry/logger.ts';
import type { UserCheck } from '../validation/validate-request.ts';

/** What a plan is made of, as it goes to another thread. */
export interface PlanSource {
  /** Made of the tenant and the version. */
  readonly id: string;
  readonly version: number;
  readonly text: string;
}

export interface EnforcedPlan {
  readonly source: PlanSource;
  /** False: nothing in this body is enforced. */
  mayEnforceIn(body: Uint8Array): boolean;
  readonly check: UserCheck;
}

/** Plans kept; each tenant has one version in use. */
const PLANS_MAX = 200;

/** Rejects with an UnusablePlanError. */
export async function openEnforcedPlan(source: PlanSource): Promise<EnforcedPlan> {
  const { compileStored, enforcedViolation } = await import('../plans/compiled-plan.ts');
  const plan = compileStored(source.text, source.version);
  return {
    source,
    mayEnforceIn: (body) => plan.mayEnforceIn(body),
    check: (user) => enforcedViolation(plan, user),
  };
}

/** A version of a tenant's plan. */
interface Entry {
  readonly version: number;
  /** Null if it cannot be read. */
  plan: EnforcedPlan | null | Promise<EnforcedPlan | null>;
}

type KeyOfTenant = Pick<ApiKey, 'accountId' | 'environment' | 'enforcedPlan'>;

export class EnforcedPlans {
  readonly #store: Pick<PlanStore, 'find'>;
  readonly #logger: Pick<RateLimitedLogger, 'error'>;
  /** By tenant, the one that was used last at the end. */
  readonly #plans = new Map<string, Entry>();

  constructor(store: Pick<PlanStore, 'find'>, logger: Pick<RateLimitedLogger, 'error'>) {
    this.#store = store;
    this.#logger = logger;
  }

  /** The plan, or null for one that cannot be read; undefined if it is not here yet. */
  peek({ accountId, environment, enforcedPlan }: KeyOfTenant): EnforcedPlan | null | undefined {
    const tenantId = tenantOf(accountId, environment);
    const known = this.#plans.get(tenantId);
    if (known === undefined || known.version !== enforcedPlan || known.plan instanceof Promise) return undefined;
    putLast(this.#plans, tenantId, known, PLANS_MAX);
    return known.plan;
  }

  /** Rejects when the store cannot be read. */
  load({ accountId, environment, enforcedPlan }: KeyOfTenant): Promise<EnforcedPlan | null> {
    if (enforcedPlan === null) throw new Error('the key has no enforced plan');
    const tenantId = tenantOf(accountId, environment);
    const known = this.#plans.get(tenantId);
    if (known !== undefined && known.version === enforcedPlan) return Promise.resolve(known.plan);
    const loading = this.#read(tenantId, { accountId, environment }, enforcedPlan);
    const entry: Entry = { version: enforcedPlan, plan: loading };
    // Another key of the tenant may be known in an older state for a second: the newest version stays.
    if (known === undefined || known.version < enforcedPlan) putLast(this.#plans, tenantId, entry, PLANS_MAX);
    loading.then(
      (plan) => (entry.plan = plan),
      () => {
        if (this.#plans.get(tenantId) === entry) this.#plans.delete(tenantId);
      },
    );
    return loading;
  }

  async #read(
    tenantId: string,
    tenant: Pick<ApiKey, 'accountId' | 'environment'>,
    version: number,
  ): Promise<EnforcedPlan | null> {
    const stored = await this.#store.find(tenant, version);
    if (stored === undefined) throw new Error(`version ${version} of the tracking plan is no longer kept`);
    try {
      return await openEnforcedPlan({ id: `${tenantId} ${version}`, version, text: stored.text });
    } catch (error) {
      if (!(error instanceof UnusablePlanError)) throw error;
      this.#logger.error({ reason: `${tenantId}, version ${version}: ${error.message}` }, UNUSABLE_PLAN);
      return null;
    }
  }
}
