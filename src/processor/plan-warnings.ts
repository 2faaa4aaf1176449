/**
 * Tracking plans that warn: the processor checks the events it stores, notes violations on the trace and counts them.
 * Tenants without such a plan cost one map lookup per batch. Plans are refreshed every second; if that fails, the last
 * known ones stay in use, because a warning is never a reason to wait. A stored plan that this version cannot read
 * warns of nothing. ajv is loaded with the first plan.
 *
 * Violations are counted by event name and path without indexes. The store bounds how many are distinguished.
 */

import { parseJson } from '../json/parse.ts';
import { type TenantId, tenantOf } from '../model.ts';
import type { PlanStore, StoredPlan } from '../plans.ts';
import type { PlanSource } from '../plans/compiled-plan.ts';
import { UNUSABLE_PLAN, UnusablePlanError } from '../plans/unusable-plan.ts';
import type { PlanViolation } from '../store-writer.ts';
import type { Logger, OutageLog } from '../telemetry/logger.ts';
import type { PreparedEvent, PreparedUser } from './prepare.ts';

const PLANS_INTERVAL_MS = 1_000;

/** A plan of one tenant that warns. */
export interface WarningPlan {
  readonly version: number;
  /** Violations by the user's stored events, and by the properties it sets. */
  violationsOf(user: PreparedUser, events: readonly PreparedEvent[]): readonly PlanWarning[];
}

interface PlanWarning {
  /** For the trace. */
  readonly text: string;
  readonly countedAs: Pick<PlanViolation, 'eventName' | 'path' | 'message'>;
}

export type WarningPlans = Pick<CurrentWarningPlans, 'of'>;

/** Rejects with an UnusablePlanError. */
export async function openWarningPlan(source: PlanSource): Promise<WarningPlan> {
  const { compileStored, checkUser, countedPath, violationText } = await import('../plans/compiled-plan.ts');
  const plan = compileStored(source);
  const { version } = source;
  return {
    version,
    violationsOf: (user, events) =>
      checkUser(plan, asSent(user, events), 'warn').map((violation) => {
        const { event_name: eventName, path, message } = violation;
        return { text: violationText(violation, version), countedAs: { eventName, path: countedPath(path), message } };
      }),
  };
}

/** What of a user is checked, in the form of a request. Events that are not stored leave a gap, so that indexes are right. */
function asSent({ propertyUpdate }: PreparedUser, stored: readonly PreparedEvent[]): object {
  const events: unknown[] = [];
  for (const { eventIndex, name, revenue, value, properties } of stored) {
    const event = parseJson(properties) as object;
    events[eventIndex] = {
      ...event,
      event_name: name,
      ...(revenue !== null && { revenue: Number(revenue) }),
      ...(value !== null && { event_value: Number(value) }),
    };
  }
  return {
    events,
    ...(propertyUpdate !== null && {
      identifiers: parseJson(propertyUpdate.fields),
      user_properties: parseJson(propertyUpdate.properties),
    }),
  };
}

export class CurrentWarningPlans {
  readonly #store: PlanStore;
  readonly #outage: Pick<OutageLog, 'failed' | 'worked'>;
  readonly #logger: Pick<Logger, 'error'>;
  /** `plan` is null for one that this version cannot use. */
  #plans: ReadonlyMap<TenantId, { readonly version: number; readonly plan: WarningPlan | null }> = new Map();
  #isRefreshing = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(store: PlanStore, outage: Pick<OutageLog, 'failed' | 'worked'>, logger: Pick<Logger, 'error'>) {
    this.#store = store;
    this.#outage = outage;
    this.#logger = logger;
  }

  /** Resolves after the first refresh, whether it worked or not. */
  async start(): Promise<void> {
    await this.refresh();
    this.#timer = setInterval(() => void this.refresh(), PLANS_INTERVAL_MS);
    this.#timer.unref();
  }

  of(tenantId: TenantId): WarningPlan | undefined {
    return this.#plans.get(tenantId)?.plan ?? undefined;
  }

  async refresh(): Promise<void> {
    if (this.#isRefreshing) return;
    this.#isRefreshing = true;
    try {
      const plans = new Map<TenantId, { readonly version: number; readonly plan: WarningPlan | null }>();
      for (const { accountId, environment, version } of await this.#store.warning()) {
        const tenantId = tenantOf(accountId, environment);
        const known = this.#plans.get(tenantId);
        const stored = known?.version === version ? null : await this.#store.find({ accountId, environment }, version);
        if (stored) plans.set(tenantId, { version, plan: await this.#open(tenantId, stored) });
        else if (known !== undefined) plans.set(tenantId, known);
      }
      this.#plans = plans;
      this.#outage.worked();
    } catch (error) {
      this.#outage.failed(error);
    } finally {
      this.#isRefreshing = false;
    }
  }

  async #open(tenantId: TenantId, { text, version }: StoredPlan): Promise<WarningPlan | null> {
    try {
      return await openWarningPlan({ id: `${tenantId} ${version}`, version, text });
    } catch (error) {
      if (!(error instanceof UnusablePlanError)) throw error;
      this.#logger.error({ tenant_id: tenantId, version, reason: error.message }, UNUSABLE_PLAN);
      return null;
    }
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
