/**
 * What the newest tracking plan of a tenant says against the users of a body, in every mode: for the dry run, where
 * people want to see the whole of it. Enforcement is `enforced-plans.ts`. A version is compiled once and kept while its
 * tenant is among the `PLANS_MAX` used last. What compiles plans is loaded with the first one.
 */

import type { ViolationsByUser } from '../api/prediction-json.ts';
import { parseJson } from '../json/parse.ts';
import type { ApiKey } from '../keys.ts';
import { tenantOf } from '../model.ts';
import type { PlanStore, StoredPlan } from '../plans.ts';
import type { CompiledPlan } from '../plans/compiled-plan.ts';

const PLANS_MAX = 20;

export class PlanViolationFinder {
  readonly #store: PlanStore;
  /** By tenant, the one that was used last at the end. */
  readonly #plans = new Map<string, CompiledPlan>();

  constructor(store: PlanStore) {
    this.#store = store;
  }

  /** Null where there is no plan. `body` is one that has been validated. Rejects when the store cannot be read. */
  async find({ accountId, environment }: ApiKey, body: Uint8Array): Promise<ViolationsByUser | null> {
    const stored = await this.#store.find({ accountId, environment });
    if (stored === undefined || (!stored.enforces && !stored.warns)) return null;
    const plan = await this.#compiled(tenantOf(accountId, environment), stored);
    const { checkUser } = await import('../plans/compiled-plan.ts');
    const text = Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('utf8');
    const { users } = parseJson(text) as { readonly users: readonly unknown[] };
    return { version: stored.version, violations: users.map((user) => checkUser(plan, user)) };
  }

  async #compiled(tenantId: string, { version, text }: StoredPlan): Promise<CompiledPlan> {
    const known = this.#plans.get(tenantId);
    if (known?.version === version) return known;
    const [{ parsePlan, describeMistakes }, compiling] = await Promise.all([
      import('../plans/plan.ts'),
      import('../plans/compiled-plan.ts'),
    ]);
    const reading = parsePlan(text);
    if (!reading.ok) throw new Error(`a stored plan cannot be used: ${describeMistakes(reading.mistakes)}`);
    const plan = new compiling.CompiledPlan(reading.plan, version);
    this.#plans.delete(tenantId);
    this.#plans.set(tenantId, plan);
    const [oldest] = this.#plans.keys();
    if (this.#plans.size > PLANS_MAX && oldest !== undefined) this.#plans.delete(oldest);
    return plan;
  }
}
