/**
 * A stored plan that this version can use, for threads that check users against it. It is compiled once in each thread;
 * the compiler is loaded with the first plan.
 */

import type { UserCheck } from '../validation/validate-request.ts';
import type { Violation } from './compiled-plan.ts';

/** What a plan is made of, as it goes to another thread. */
export interface PlanSource {
  /** Made of the tenant and the version. */
  readonly id: string;
  readonly version: number;
  readonly text: string;
}

export interface UsablePlan {
  readonly source: PlanSource;
  /** False: nothing in this body is enforced. */
  mayEnforceIn(body: Uint8Array): boolean;
  /** The first violation of what is enforced. */
  readonly enforced: UserCheck;
  /** In every mode. */
  violationsOf(user: unknown): readonly Violation[];
}

/** Rejects with an UnusablePlanError. */
export async function openPlan(source: PlanSource): Promise<UsablePlan> {
  const { checkUser, compileStored, enforcedViolation } = await import('./compiled-plan.ts');
  const plan = compileStored(source.text, source.version);
  return {
    source,
    mayEnforceIn: (body) => plan.mayEnforceIn(body),
    enforced: (user) => enforcedViolation(plan, user),
    violationsOf: (user) => checkUser(plan, user),
  };
}
