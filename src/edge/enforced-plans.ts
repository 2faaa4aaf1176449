/**
 * The tracking plans that an edge enforces. A key names the enforced version of its tenant's plan
 * (`ApiKey.enforcedPlan`), so requests of tenants that enforce nothing never get here. A version never changes: it is
 * read and compiled once, and kept while it is among the `PLANS_MAX` used last. A stored plan that this version cannot use
 * enforces nothing.
 */

import type { ApiKey } from '../keys.ts';
import { tenantOf } from '../model.ts';
import type { PlanStore } from '../plans.ts';
import { UNUSABLE_PLAN, UnusablePlanError } from '../plans/unusable-plan.ts';
import { openPlan, type UsablePlan } from '../plans/usable-plan.ts';
import { putLast } from '../runtime/put-last.ts';
import type { RateLimitedLogger } from '../telemetry/logger.ts';

const PLANS_MAX = 200;

type KeyOfTenant = Pick<ApiKey, 'accountId' | 'environment' | 'enforcedPlan'>;

function idOf({ accountId, environment, enforcedPlan }: KeyOfTenant): string {
  return `${tenantOf(accountId, environment)} ${enforcedPlan}`;
}

export class EnforcedPlans {
  readonly #store: Pick<PlanStore, 'find'>;
  readonly #logger: Pick<RateLimitedLogger, 'error'>;
  /** By id, the one that was used last at the end; null for one that this version cannot use. */
  readonly #plans = new Map<string, UsablePlan | null>();
  readonly #loading = new Map<string, Promise<UsablePlan | null>>();

  constructor(store: Pick<PlanStore, 'find'>, logger: Pick<RateLimitedLogger, 'error'>) {
    this.#store = store;
    this.#logger = logger;
  }

  /** The plan, or null for one that this version cannot use; undefined if it is not loaded yet. */
  peek(key: KeyOfTenant): UsablePlan | null | undefined {
    const id = idOf(key);
    const plan = this.#plans.get(id);
    if (plan !== undefined) putLast(this.#plans, id, plan, PLANS_MAX);
    return plan;
  }

  /** Rejects when the store cannot be read. */
  load(key: KeyOfTenant): Promise<UsablePlan | null> {
    const id = idOf(key);
    return this.#loading.getOrInsertComputed(id, () => this.#read(id, key).finally(() => this.#loading.delete(id)));
  }

  async #read(id: string, { accountId, environment, enforcedPlan: version }: KeyOfTenant): Promise<UsablePlan | null> {
    if (version === null) throw new Error('the key has no enforced plan');
    const stored = await this.#store.find({ accountId, environment }, version);
    if (stored === undefined) throw new Error(`version ${version} of the tracking plan is no longer kept`);
    let plan: UsablePlan | null = null;
    try {
      plan = await openPlan({ id, version, text: stored.text });
    } catch (error) {
      if (!(error instanceof UnusablePlanError)) throw error;
      const reason = `${tenantOf(accountId, environment)}, version ${version}: ${error.message}`;
      this.#logger.error({ reason }, UNUSABLE_PLAN);
    }
    putLast(this.#plans, id, plan, PLANS_MAX);
    return plan;
  }
}
