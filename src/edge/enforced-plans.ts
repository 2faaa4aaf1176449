/**
 * The tracking plans that an edge enforces. A key names the enforced version of its tenant's plan
 * (`ApiKey.enforcedPlan`), so requests of tenants that enforce nothing never get here. A version never changes: it is
 * read and compiled once, and kept while its tenant is among the `PLANS_MAX` loaded last. The compiler is loaded with
 * the first plan.
 */

import type { ApiKey } from '../keys.ts';
import { tenantOf } from '../model.ts';
import type { PlanStore } from '../plans.ts';
import type { UserCheck } from '../validation/validate-request.ts';

/** What a plan is made of, as it goes to another thread. */
export interface PlanSource {
  /** Of the tenant and the version. */
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

/** Of tenants; each has one version in use. */
const PLANS_MAX = 200;

export async function openEnforcedPlan(source: PlanSource): Promise<EnforcedPlan> {
  const [{ parsePlan, describeMistakes }, { CompiledPlan, enforcedViolation }] = await Promise.all([
    import('../plans/plan.ts'),
    import('../plans/compiled-plan.ts'),
  ]);
  const reading = parsePlan(source.text);
  if (!reading.ok) throw new Error(`a stored plan cannot be used: ${describeMistakes(reading.mistakes)}`);
  const plan = new CompiledPlan(reading.plan, source.version);
  return {
    source,
    mayEnforceIn: (body) => plan.mayEnforceIn(body),
    check: (user) => enforcedViolation(plan, user),
  };
}

export class EnforcedPlans {
  readonly #store: PlanStore;
  /** By tenant, in the order in which they were loaded. */
  readonly #plans = new Map<string, { readonly version: number; plan: EnforcedPlan | Promise<EnforcedPlan> }>();

  constructor(store: PlanStore) {
    this.#store = store;
  }

  /** The plan, if it is here already. */
  peek({ accountId, environment, enforcedPlan }: ApiKey): EnforcedPlan | undefined {
    const known = this.#plans.get(tenantOf(accountId, environment));
    if (known === undefined || known.version !== enforcedPlan || known.plan instanceof Promise) return undefined;
    return known.plan;
  }

  /** Rejects when the store cannot be read. */
  load({ accountId, environment, enforcedPlan }: ApiKey): Promise<EnforcedPlan> {
    if (enforcedPlan === null) throw new Error('the key has no enforced plan');
    const tenantId = tenantOf(accountId, environment);
    const known = this.#plans.get(tenantId);
    if (known !== undefined && known.version === enforcedPlan) return Promise.resolve(known.plan);
    const loading = this.#read(tenantId, { accountId, environment }, enforcedPlan);
    const entry: { version: number; plan: EnforcedPlan | Promise<EnforcedPlan> } = {
      version: enforcedPlan,
      plan: loading,
    };
    // Another key of the tenant may be known in an older state for a second: the newest version stays.
    if (known === undefined || known.version < enforcedPlan) this.#keep(tenantId, entry);
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
  ): Promise<EnforcedPlan> {
    const stored = await this.#store.find(tenant, version);
    if (stored === undefined) throw new Error(`version ${version} of the tracking plan is no longer kept`);
    return openEnforcedPlan({ id: `${tenantId} ${version}`, version, text: stored.text });
  }

  #keep(tenantId: string, entry: { readonly version: number; plan: EnforcedPlan | Promise<EnforcedPlan> }): void {
    this.#plans.delete(tenantId);
    this.#plans.set(tenantId, entry);
    if (this.#plans.size <= PLANS_MAX) return;
    const first = this.#plans.keys().next();
    if (first.done !== true) this.#plans.delete(first.value);
  }
}
