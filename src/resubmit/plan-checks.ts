/**
 * What a tenant's tracking plan says against users that are resubmitted, which are held to the plan as it is now, like
 * requests; and against those of a dry run. The newest version is read with each call, and compiled once. Enforcement at the edge is `edge/enforced-plans.ts`.
 *
 * An enforced plan that this version of Sluice cannot use accepts no one here: users stay rejected, with a message that
 * says so, and the job continues. Requests are accepted unchecked then (plans/unusable-plan.ts), since their clients
 * cannot wait; what is resubmitted can.
 */

import { type TenantId, tenantPartsOf } from '../model.ts';
import { UnusablePlanError } from '../plans/unusable-plan.ts';
import { openPlan, type UsablePlan } from '../plans/usable-plan.ts';
import type { PlanStore, StoredPlan } from '../plans.ts';
import type { UserCheck } from '../validation/validate-request.ts';

export interface PlanCheck {
  readonly version: number;
  /** Why this version of Sluice cannot use the plan; null if it can. */
  readonly problem: string | null;
  /** Null if it cannot. */
  readonly plan: UsablePlan | null;
  readonly enforced: UserCheck;
}

export class PlanChecks {
  readonly #store: Pick<PlanStore, 'find'>;
  #last: { readonly tenantId: TenantId; readonly check: PlanCheck } | undefined;

  constructor(store: Pick<PlanStore, 'find'>) {
    this.#store = store;
  }

  /** Undefined where there is no plan. Rejects when the store cannot be read. */
  async of(tenantId: TenantId): Promise<PlanCheck | undefined> {
    const stored = await this.#store.find(tenantPartsOf(tenantId));
    if (stored === undefined || (!stored.enforces && !stored.warns)) return undefined;
    if (this.#last?.tenantId !== tenantId || this.#last.check.version !== stored.version) {
      this.#last = { tenantId, check: await openCheck(tenantId, stored) };
    }
    return this.#last.check;
  }
}

async function openCheck(tenantId: TenantId, { text, version, enforces }: StoredPlan): Promise<PlanCheck> {
  try {
    const plan = await openPlan({ id: `${tenantId} ${version}`, version, text });
    return { version, problem: null, plan, enforced: plan.enforced };
  } catch (error) {
    if (!(error instanceof UnusablePlanError)) throw error;
    const unusable = `version ${version} of the tracking plan cannot be used by this version of Sluice: push a plan that is valid`;
    return { version, problem: error.message, plan: null, enforced: () => (enforces ? unusable : null) };
  }
}
