/**
 * The interface of stored tracking plans (`plans/` checks users with them): per tenant a list of versions that are never
 * changed, of which the newest is in use. They are stored with the keys, since an edge needs both. Few and rarely
 * written; servers learn of a new version with the key of a request (`ApiKey.enforcedPlan`) and keep its plan.
 */

import type { Environment } from './model.ts';

/** The tenant that a plan is for. */
export interface PlanTenant {
  readonly accountId: string;
  readonly environment: Environment;
}

export interface PlanVersion {
  readonly version: number;
  readonly createdAt: number;
  /** Who pushed it: the id of a key or of a member. */
  readonly createdBy: string;
  /** Whether something in it is enforced, and whether something in it warns. */
  readonly enforces: boolean;
  readonly warns: boolean;
}

export interface StoredPlan extends PlanVersion {
  /** The plan as JSON, without its version. */
  readonly text: string;
}

export interface NewPlan extends Omit<StoredPlan, 'version'> {
  /**
   * The version that was edited: the push is refused if that is not the newest. Null: whatever the newest is. 0: there
   * is none.
   */
  readonly basedOn: number | null;
}

/** The newest version, and whether the push made it; it did not where the plan is the same, or `isConflict`. */
export interface PushedPlan {
  readonly newest: PlanVersion | null;
  readonly isNew: boolean;
  readonly isConflict: boolean;
}

/** Versions kept per tenant, the newest ones. */
export const PLAN_VERSIONS_MAX = 100;

/** Every method rejects when the store cannot be read or written. */
export interface PlanStore {
  /** The newest version, or that one; undefined if there is none. */
  find(tenant: PlanTenant, version?: number): Promise<StoredPlan | undefined>;
  versions(tenant: PlanTenant): Promise<PlanVersion[]>;
  push(tenant: PlanTenant, plan: NewPlan): Promise<PushedPlan>;
  /** The newest version of every tenant whose newest version warns. */
  warning(): Promise<(PlanTenant & { readonly version: number })[]>;
}
