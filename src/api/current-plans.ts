/**
 * The tracking plan of a tenant as it is now, for what the API masks or shows by it. Asked for again after a second; while
 * the store cannot be read, what is known stays in use. Bounded: the tenants asked for last.
 */

import { type TenantId, tenantPartsOf } from '../model.ts';
import { type Plan, readStored } from '../plans/plan.ts';
import type { PlanStore } from '../plans.ts';
import { putLast } from '../runtime/put-last.ts';

const FRESH_MS = 1_000;
const TENANTS_MAX = 100;

interface Known {
  readonly version: number;
  readonly plan: Plan | null;
  readonly askedAt: number;
}

export class CurrentPlans {
  readonly #store: PlanStore;
  readonly #known = new Map<TenantId, Known>();

  constructor(store: PlanStore) {
    this.#store = store;
  }

  /** Null where there is none. Rejects when it cannot be read and none is known; with an UnusablePlanError, see there. */
  async of(tenantId: TenantId): Promise<Plan | null> {
    const now = performance.now();
    const known = this.#known.get(tenantId);
    if (known !== undefined && now - known.askedAt < FRESH_MS) return known.plan;
    try {
      const stored = await this.#store.find(tenantPartsOf(tenantId));
      const version = stored?.version ?? 0;
      const plan = known?.version === version ? known.plan : stored === undefined ? null : readStored(stored.text);
      putLast(this.#known, tenantId, { version, plan, askedAt: now }, TENANTS_MAX);
      return plan;
    } catch (error) {
      if (known === undefined) throw error;
      return known.plan;
    }
  }
}
