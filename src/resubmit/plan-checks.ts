/**
 * What a tenant's tracking plan says against users that are resubmitted, which are held to the plan as it is now, like
 * requests; and against those of a dry run. The newest version is read with each call, and compiled once. What compiles
 * plans is loaded with the first one. Enforcement at the edge is `edge/enforced-plans.ts`.
 *
 * An enforced plan that this version of Sluice cannot use accepts no one here: users stay rejected, with a message that
 * says so, and the job continues. Requests are accepted unchecked then (plans/unusable-plan.ts), since their clients
 * cannot wait; what is resubmitted can.
 */

import { type TenantId, tenantPartsOf } from '../model.ts';
import type { Violation } from '../plans/compiled-plan.ts';
import { UnusablePlanError } from '../plans/unusable-plan.ts';
import type { PlanStore, StoredPlan } from '../plans.ts';
import type { UserCheck } from '../validation/validate-request.ts';

export interface PlanCheck {
  readonly version: number;
  /** Why this version of Sluice cannot use the plan; null if it can. */
  readonly problem: string | null;
  readonly enforced: UserCheck;
  violationsOf(user: unknown): readonly Violation[];
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
      this.#last = { tenantId, check: await openCheck(stored) };
    }
    return this.#last.check;
  }
}

async function openCheck({ text, version, enforces }: StoredPlan): Promise<PlanCheck> {
  const { compileStored, checkUser, enforcedViolation } = await import('../plans/compiled-plan.ts');
  try {
    const plan = compileStored(text, version);
    return {
      version,
      problem: null,
      enforced: (user) => enforcedViolation(plan, user),
      violationsOf: (user) => checkUser(plan, user),
    };
  } catch (error) {
    if (!(error instanceof UnusablePlanError)) throw error;
    const unusable = `version ${version} of the tracking plan cannot be used by this version of Sluice: push a plan that is valid`;
    return { version, problem: error.message, enforced: () => (enforces ? unusable : null), violationsOf: () => [] };
  }
}
