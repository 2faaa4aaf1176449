/**
 * How a prediction looks in a response: names as in traces and profiles, values of clients as they came. The route's
 * description (`check-operation.ts`) and a test hold them together. Pure.
 */

import { REFUSAL_REASONS, REFUSAL_RULES } from '../model.ts';
import type { PredictedUser, Prediction } from '../store.ts';
import { raw } from './json-text.ts';

export function predictionJson({ users, pendingRequests }: Prediction) {
  return { pending_requests: pendingRequests, users: users.map(predictedUserJson) };
}

function predictedUserJson(user: PredictedUser) {
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
    violations: [],
    message: user.message,
  };
}
