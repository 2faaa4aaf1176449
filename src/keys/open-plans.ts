/**
 * The tracking plans that a thread checks users against. A version never changes: it is read and compiled once, and kept
 * while it is among the `PLANS_MAX` used last. One that this version of Sluice cannot use is kept as such; what follows
 * from that is up to the caller. The compiler is loaded with the first plan.
 */

import { type TenantId, tenantPartsOf } from '../model.ts';
import type { CompiledPlan } from '../plans/compiled-plan.ts';
import { UnusablePlanError } from '../plans/unusable-plan.ts';
import type { PlanStore, StoredPlan } from '../plans.ts';
import { putLast } from '../runtime/put-last.ts';

const PLANS_MAX = 200;

export interface OpenPlan {
  readonly version: number;
  /** Whether something in it is enforced. */
  readonly enforces: boolean;
  /** Null for one that this version cannot use. */
  readonly plan: CompiledPlan | null;
}

export class OpenPlans {
  readonly #store: Pick<PlanStore, 'find'>;
  readonly #onUnusable: (reason: string) => void;
  /** By id, the one that was used last at the end. */
  readonly #plans = new Map<string, OpenPlan>();
  readonly #opening = new Map<string, Promise<OpenPlan>>();

  /** `onUnusable` is called each time that a plan is opened and cannot be used. */
  constructor(store: Pick<PlanStore, 'find'>, onUnusable: (reason: string) => void = () => undefined) {
    this.#store = store;
    this.#onUnusable = onUnusable;
  }

  /** Undefined if it is not open yet. */
  peek(tenantId: TenantId, version: number): OpenPlan | undefined {
    const id = idOf(tenantId, version);
    const known = this.#plans.get(id);
    if (known !== undefined) putLast(this.#plans, id, known, PLANS_MAX);
    return known;
  }

  /** Rejects when the store cannot be read. It is not read if `stored` is given. */
  open(tenantId: TenantId, version: number, stored?: StoredPlan): Promise<OpenPlan> {
    const id = idOf(tenantId, version);
    return this.#opening.getOrInsertComputed(id, () =>
      this.#open(id, tenantId, version, stored).finally(() => this.#opening.delete(id)),
    );
  }

  /** The newest version, read with each call; undefined where nothing is checked. Rejects when the store cannot be read. */
  async newest(tenantId: TenantId): Promise<OpenPlan | undefined> {
    const stored = await this.#store.find(tenantPartsOf(tenantId));
    if (stored === undefined || (!stored.enforces && !stored.warns)) return undefined;
    return this.peek(tenantId, stored.version) ?? this.open(tenantId, stored.version, stored);
  }

  async #open(id: string, tenantId: TenantId, version: number, given: StoredPlan | undefined): Promise<OpenPlan> {
    const stored = given ?? (await this.#store.find(tenantPartsOf(tenantId), version));
    if (stored === undefined) throw new Error(`version ${version} of the tracking plan is no longer kept`);
    const { text, enforces } = stored;
    const { compileStored } = await import('../plans/compiled-plan.ts');
    let plan: CompiledPlan | null = null;
    try {
      plan = compileStored({ id, version, text });
    } catch (error) {
      if (!(error instanceof UnusablePlanError)) throw error;
      this.#onUnusable(`${tenantId}, version ${version}: ${error.message}`);
    }
    const opened = { version, enforces, plan };
    putLast(this.#plans, id, opened, PLANS_MAX);
    return opened;
  }
}

function idOf(tenantId: TenantId, version: number): string {
  return `${tenantId} ${version}`;
}
