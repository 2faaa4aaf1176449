/**
 * What a tenant's tracking plan enforces, for users that are resubmitted: they are held to the plan as it is now, like
 * requests. The newest version is read with each call, and compiled once. What compiles plans is loaded with the first one.
 */

import { type TenantId, tenantPartsOf } from '../model.ts';
import type { PlanStore } from '../plans.ts';
import type { UserCheck } from '../validation/validate-request.ts';

export class EnforcedChecks {
  readonly #store: Pick<PlanStore, 'find'>;
  #last: { readonly tenantId: TenantId; readonly version: number; readonly check: UserCheck } | undefined;

  constructor(store: Pick<PlanStore, 'find'>) {
    this.#store = store;
  }

  /** Undefined where nothing is enforced. Rejects when the plan cannot be read. */
  async of(tenantId: TenantId): Promise<UserCheck | undefined> {
    const stored = await this.#store.find(tenantPartsOf(tenantId));
    if (stored === undefined || !stored.enforces) return undefined;
    const { version, text } = stored;
    if (this.#last?.tenantId === tenantId && this.#last.version === version) return this.#last.check;
    const [{ parsePlan, describeMistakes }, { CompiledPlan, enforcedViolation }] = await Promise.all([
      import('../plans/plan.ts'),
      import('../plans/compiled-plan.ts'),
    ]);
    const reading = parsePlan(text);
    if (!reading.ok) throw new Error(`a stored plan cannot be used: ${describeMistakes(reading.mistakes)}`);
    const plan = new CompiledPlan(reading.plan, version);
    const check: UserCheck = (user) => enforcedViolation(plan, user);
    this.#last = { tenantId, version, check };
    return check;
  }
}
