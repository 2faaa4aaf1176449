/**
 * Tracking plans that warn: the processor checks the events it stores, notes violations on the trace and counts them.
 * Tenants without such a plan cost one map lookup per batch. Plans are refreshed every second; if that fails, the last
 * known ones stay in use, because a warning is never a reason to wait. A plan that this version of Sluice cannot use warns
 * of nothing, and is reported. ajv is loaded with the first plan.
 *
 * Violations are counted by event name and path without indexes. Because clients choose names, each process
 * distinguishes at most `COUNTED_MAX` of a version and counts the rest as one.
 */

import type { Violation } from '../plans/compiled-plan.ts';
import { parseJson } from '../json/parse.ts';
import { type TenantId, tenantOf } from '../model.ts';
import type { PlanStore } from '../plans.ts';
import type { PlanViolation } from '../store-writer.ts';
import type { OutageLog } from '../telemetry/outage-log.ts';
import type { PreparedEvent, PreparedUser } from './prepared.ts';

export const PLANS_INTERVAL_MS = 1_000;
const COUNTED_MAX = 1_000;
const OTHERS = { eventName: null, path: '…', message: 'other violations' } as const;

/** A plan of one tenant that warns. */
export interface WarningPlan {
  readonly version: number;
  /** Why it cannot be used. */
  readonly problem?: string;
  /** Of the events that are stored of this user, and of what it sets. */
  violationsOf(user: PreparedUser, events: readonly PreparedEvent[]): readonly Violation[];
  /** What a violation is counted as. */
  countedAs(violation: Violation): Pick<PlanViolation, 'eventName' | 'path' | 'message'>;
}

export interface WarningPlans {
  of(tenantId: TenantId): WarningPlan | undefined;
}

export async function openWarningPlan(text: string, version: number): Promise<WarningPlan> {
  const [{ parsePlan, describeMistakes }, { CompiledPlan, checkUser, countedPath }] = await Promise.all([
    import('../plans/plan.ts'),
    import('../plans/compiled-plan.ts'),
  ]);
  const reading = parsePlan(text);
  if (!reading.ok) {
    const problem = `a stored plan cannot be used: ${describeMistakes(reading.mistakes)}`;
    return { version, problem, violationsOf: () => [], countedAs: () => OTHERS };
  }
  const plan = new CompiledPlan(reading.plan, version);
  const counted = new Set<string>();
  return {
    version,
    violationsOf: (user, events) => checkUser(plan, asSent(user, events), 'warn'),
    countedAs: ({ event_name: eventName, path, message }) => {
      const one = { eventName, path: countedPath(path), message };
      const key = JSON.stringify(one);
      if (!counted.has(key) && counted.size >= COUNTED_MAX) return OTHERS;
      counted.add(key);
      return one;
    },
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

export class CurrentWarningPlans implements WarningPlans {
  readonly #store: PlanStore;
  readonly #outage: Pick<OutageLog, 'failed' | 'worked'>;
  #plans: ReadonlyMap<TenantId, WarningPlan> = new Map();
  #isLooking = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(store: PlanStore, outage: Pick<OutageLog, 'failed' | 'worked'>) {
    this.#store = store;
    this.#outage = outage;
  }

  /** Resolves after the first look, whether it worked or not. */
  async start(): Promise<void> {
    await this.look();
    this.#timer = setInterval(() => void this.look(), PLANS_INTERVAL_MS);
    this.#timer.unref();
  }

  of(tenantId: TenantId): WarningPlan | undefined {
    return this.#plans.get(tenantId);
  }

  async look(): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    try {
      const plans = new Map<TenantId, WarningPlan>();
      for (const { accountId, environment, version } of await this.#store.warning()) {
        const tenantId = tenantOf(accountId, environment);
        const known = this.#plans.get(tenantId);
        const stored = known?.version === version ? null : await this.#store.find({ accountId, environment }, version);
        if (stored) plans.set(tenantId, await openWarningPlan(stored.text, version));
        else if (known !== undefined) plans.set(tenantId, known);
      }
      this.#plans = plans;
      const problem = plans.values().find((plan) => plan.problem !== undefined)?.problem;
      if (problem === undefined) this.#outage.worked();
      else this.#outage.failed(new Error(problem));
    } catch (error) {
      this.#outage.failed(error);
    } finally {
      this.#isLooking = false;
    }
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
