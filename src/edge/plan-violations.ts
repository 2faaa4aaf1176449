/**
 * What the newest tracking plan of a tenant says against the users of a body, in every mode: for the dry run, where
 * people want to see the whole of it. Enforcement is `enforced-plans.ts`. A version is compiled once and kept while its
 * tenant is among the `PLANS_MAX` used last. What compiles plans is loaded with the first one. A stored plan that this
 * version cannot read counts as none.
 */

import type { ViolationsByUser } from '../api/prediction-json.ts';
import { parseJson } from '../json/parse.ts';
import type { ApiKey } from '../keys.ts';
import { tenantOf } from '../model.ts';
import type { PlanStore, StoredPlan } from '../plans.ts';
import type { CompiledPlan } from '../plans/compiled-plan.ts';
import { UNUSABLE_PLAN, UnusablePlanError } from '../plans/unusable-plan.ts';
import type { RateLimitedLogger } from '../telemetry/rate-limited-logger.ts';

const PLANS_MAX = 20;

export class PlanViolationFinder {
  readonly #store: Pick<PlanStore, 'find'>;
  readonly #logger: Pick<RateLimitedLogger, 'error'>;
  /** By tenant, the one that was used last at the end; null for one that cannot be read. */
  readonly #plans = new Map<string, { readonly version: number; readonly plan: CompiledPlan | null }>();

  constructor(store: Pick<PlanStore, 'find'>, logger: Pick<RateLimitedLogger, 'error'>) {
    this.#store = store;
    this.#logger = logger;
  }

  /** Null where there is no plan. `body` is one that has been validated. Rejects when the store cannot be read. */
  async find(
    { accountId, environment }: Pick<ApiKey, 'accountId' | 'environment'>,
    body: Uint8Array,
  ): Promise<ViolationsByUser | null> {
    const stored = await this.#store.find({ accountId, environment });
    if (stored === undefined || (!stored.enforces && !stored.warns)) return null;
    const plan = await this.#compiled(tenantOf(accountId, environment), stored);
    if (plan === null) return null;
    const { checkUser } = await import('../plans/compiled-plan.ts');
    const text = Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('utf8');
    const { users } = parseJson(text) as { readonly users: readonly unknown[] };
    return { version: stored.version, violations: users.map((user) => checkUser(plan, user)) };
  }

  async #compiled(tenantId: string, stored: StoredPlan): Promise<CompiledPlan | null> {
    const { version } = stored;
    const known = this.#plans.get(tenantId);
    const entry = known?.version === version ? known : { version, plan: await this.#compile(tenantId, stored) };
    this.#plans.delete(tenantId);
    this.#plans.set(tenantId, entry);
    const [oldest] = this.#plans.keys();
    if (this.#plans.size > PLANS_MAX && oldest !== undefined) this.#plans.delete(oldest);
    return entry.plan;
  }

  async #compile(tenantId: string, { version, text }: StoredPlan): Promise<CompiledPlan | null> {
    const { compileStored } = await import('../plans/compiled-plan.ts');
    try {
      return compileStored(text, version);
    } catch (error) {
      if (!(error instanceof UnusablePlanError)) throw error;
      this.#logger.error({ reason: `${tenantId}, version ${version}: ${error.message}` }, UNUSABLE_PLAN);
      return null;
    }
  }
}
