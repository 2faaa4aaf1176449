/**
 * How a prediction looks in a response: names as in traces and profiles, values of clients as they came. The route's
 * description (`check-operation.ts`) and a test hold them together. Pure.
 */

import type { Violation } from '../plans/compiled-plan.ts';
import { REFUSAL_REASONS, REFUSAL_RULES } from '../model.ts';
import type { PredictedUser, Prediction } from '../store.ts';
import { raw } from './json-text.ts';

/** What a tracking plan says against each user, by index. */
export interface ViolationsByUser {
  readonly version: number;
  readonly violations: readonly (readonly Violation[])[];
}

export function predictionJson({ users, pendingRequests }: Prediction, plan: ViolationsByUser | null) {
  return {
    pending_requests: pendingRequests,
    plan_version: plan?.version ?? null,
    users: users.map((user) => predictedUserJson(user, plan?.violations[user.userIndex] ?? [])),
  };
}

export function predictedUserJson(user: PredictedUser, violations: readonly Violation[]) {
  return {
    userIndex: user.userIndex,
    status: user.status,
    profile_id: user.profileId,
    is_new: user.isNew,
    events: user.events,
    duplicate_events: user.duplicateEvents,
    duplicate_of: user.duplicateOf,
    new_identifiers: user.newIdentifiers.map(({ type, value }) => ({ type, value })),
    merges: user.merges.map(({ from, into, via: { type, value } }) => ({ from, into, via: { type, value } })),
    refusals: user.refusals.map(({ type, value, reason }) => ({
      type,
      value,
      reason,
      rule: REFUSAL_RULES[reason],
      message: REFUSAL_REASONS[reason],
    })),
    property_changes: user.propertyChanges.map(({ kind, name, before, after }) => ({
      kind,
      name,
      before: before === null ? null : raw(before),
      after: after === null ? null : raw(after),
    })),
    property_changes_omitted: user.propertyChangesOmitted,
    warnings: user.warnings,
    violations: violations.map(({ path, message, event_name, mode }) => ({ path, message, event_name, mode })),
    message: user.message,
  };
}
