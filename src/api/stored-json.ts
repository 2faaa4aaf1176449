/**
 * How what the store keeps looks in a response: names as the contract has them, times in UTC with milliseconds, values
 * of clients as they came. Routes check it against their schemas; the command line prints the same. Pure.
 */

import { IDENTIFIER_TYPES } from '../model.ts';
import type {
  Page,
  Provenance,
  Resubmission,
  StoredEvent,
  StoredIdentity,
  StoredMerge,
  StoredProfile,
  StoredTrace,
  TracedUser,
  TraceSummary,
} from '../store.ts';
import { raw } from './json-text.ts';
import { type People, personJson } from './person-of-event.ts';

/** A time as responses have it. */
export type TimeText = `${string}Z`;

export function timeText(milliseconds: number): TimeText {
  return new Date(milliseconds).toISOString() as TimeText;
}

export function profileJson(profile: StoredProfile, withProvenance: boolean) {
  return {
    id: profile.id,
    merged_ids: profile.mergedIds,
    identifiers: new Map(IDENTIFIER_TYPES.map((type) => [type, profile.identifiers[type]])),
    profile_fields: valuesOf(profile.profileFields),
    user_properties: valuesOf(profile.userProperties),
    first_seen: timeText(profile.firstSeen),
    last_seen: timeText(profile.lastSeen),
    event_count: profile.eventCount,
    provenance: withProvenance
      ? {
          profile_fields: provenanceOf(profile.profileFields),
          user_properties: provenanceOf(profile.userProperties),
        }
      : undefined,
  };
}

function valuesOf(values: ReadonlyMap<string, Provenance>) {
  return new Map([...values].map(([name, { value }]) => [name, raw(value)]));
}

function provenanceOf(values: ReadonlyMap<string, Provenance>) {
  return new Map(
    [...values].map(([name, { value, traceId, receivedAt }]) => [
      name,
      { value: raw(value), trace_id: traceId, received_at: timeText(receivedAt) },
    ]),
  );
}

/** With `people`, also the person that it belongs to. */
export function eventJson(event: StoredEvent, people?: People) {
  return {
    id: event.id,
    event_name: event.eventName,
    timestamp: timeText(event.timestamp),
    received_at: timeText(event.receivedAt),
    revenue: event.revenue === null ? null : raw(event.revenue),
    event_value: event.eventValue === null ? null : raw(event.eventValue),
    properties: raw(event.properties),
    profile_id: event.profileId,
    trace_id: event.traceId,
    userIndex: event.userIndex,
    key_id: event.keyId,
    person: personJson(people, event.profileId),
  };
}

export function eventPageJson({ rows, nextCursor }: Page<StoredEvent>, people?: People) {
  return { events: rows.map((event) => eventJson(event, people)), next_cursor: nextCursor };
}

export function identityJson(identity: StoredIdentity) {
  return {
    identifiers: identity.identifiers.map(({ type, value, nodeId, traceId, userIndex, at }) => ({
      type,
      value,
      node: nodeId,
      first_trace_id: traceId,
      userIndex,
      first_seen: timeText(at),
    })),
    merges: identity.merges.map(mergeJson),
    refusals: identity.refusals.map(({ type, value, reason, traceId, userIndex, at, count }) => ({
      type,
      value,
      reason,
      trace_id: traceId,
      userIndex,
      at: timeText(at),
      count,
    })),
  };
}

export function mergeJson({ from, into, nodes, via, traceId, userIndex, at }: StoredMerge) {
  return {
    from,
    into,
    via: { type: via.type, value: via.value },
    nodes,
    trace_id: traceId,
    userIndex,
    at: timeText(at),
  };
}

export function traceSummaryJson(trace: TraceSummary) {
  return { ...requestJson(trace), events: trace.events };
}

export function traceJson(trace: StoredTrace, people?: People) {
  const users = trace.users.map((user) => tracedUserJson(user, people));
  return { ...requestJson(trace), format: trace.format, users };
}

function requestJson(trace: Omit<TraceSummary, 'events'>) {
  return {
    trace_id: trace.traceId,
    status: trace.status,
    received_at: timeText(trace.receivedAt),
    processed_at: trace.processedAt === null ? null : timeText(trace.processedAt),
    users_accepted: trace.usersAccepted,
    users_rejected: trace.usersRejected,
    duplicate_of: trace.duplicateOf,
    key_id: trace.keyId,
  };
}

function resubmissionJson({ at, by, jobId, patch }: Resubmission) {
  const steps = patch.map(({ op, path, from }) => ({ op, path, from }));
  return { at: timeText(at), by, job_id: jobId, patch: steps };
}

function tracedUserJson(user: TracedUser, people: People | undefined) {
  return {
    userIndex: user.userIndex,
    status: user.status,
    profile_id: user.profileId,
    events: user.events,
    duplicate_events: user.duplicateEvents > 0 ? user.duplicateEvents : undefined,
    merged: user.merged.map(({ from, into }) => ({ from, into })),
    warnings: user.warnings,
    message: user.message,
    resubmitted: user.resubmitted && resubmissionJson(user.resubmitted),
    person: personJson(people, user.profileId),
  };
}
