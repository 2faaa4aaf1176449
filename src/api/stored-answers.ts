/**
 * How what the store keeps looks in an answer: names as the contract has them, times in UTC with milliseconds, values
 * of clients as they came. Pure.
 */

import { IDENTIFIER_TYPES } from '../model.ts';
import type {
  Page,
  Provenance,
  StoredEvent,
  StoredIdentity,
  StoredProfile,
  StoredTrace,
  TracedUser,
  TraceSummary,
} from '../store.ts';
import { type Json, raw } from './json-text.ts';
import { type People, personAnswer } from './person-of-event.ts';

export function timeText(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}

export function profileAnswer(profile: StoredProfile, withProvenance: boolean): Json {
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

function valuesOf(told: ReadonlyMap<string, Provenance>): Json {
  return new Map([...told].map(([name, { value }]) => [name, raw(value)]));
}

function provenanceOf(told: ReadonlyMap<string, Provenance>): Json {
  return new Map(
    [...told].map(([name, { value, traceId, receivedAt }]): [string, Json] => [
      name,
      { value: raw(value), trace_id: traceId, received_at: timeText(receivedAt) },
    ]),
  );
}

/** With `people`, what to call the one that it belongs to. */
export function eventAnswer(event: StoredEvent, people?: People): Json {
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
    person: personAnswer(people, event.profileId),
  };
}

export function eventPageAnswer({ rows, nextCursor }: Page<StoredEvent>, people?: People): Json {
  return { events: rows.map((event) => eventAnswer(event, people)), next_cursor: nextCursor };
}

export function identityAnswer(identity: StoredIdentity, chain: Json | undefined): Json {
  return {
    identifiers: identity.identifiers.map(({ type, value, nodeId, traceId, userIndex, at }) => ({
      type,
      value,
      node: nodeId,
      first_trace_id: traceId,
      userIndex,
      first_seen: timeText(at),
    })),
    merges: identity.merges.map(({ from, into, nodes, via, traceId, userIndex, at }) => ({
      from,
      into,
      via: { type: via.type, value: via.value },
      nodes,
      trace_id: traceId,
      userIndex,
      at: timeText(at),
    })),
    refusals: identity.refusals.map(({ type, value, reason, traceId, userIndex, at, count }) => ({
      type,
      value,
      reason,
      trace_id: traceId,
      userIndex,
      at: timeText(at),
      count,
    })),
    chain,
  };
}

export function traceSummaryAnswer(trace: TraceSummary): Json {
  return {
    trace_id: trace.traceId,
    status: trace.status,
    received_at: timeText(trace.receivedAt),
    processed_at: trace.processedAt === null ? null : timeText(trace.processedAt),
    users_accepted: trace.usersAccepted,
    users_rejected: trace.usersRejected,
    events: trace.events,
    duplicate_of: trace.duplicateOf,
    key_id: trace.keyId,
  };
}

export function traceAnswer(trace: StoredTrace, people?: People): Json {
  return {
    trace_id: trace.traceId,
    status: trace.status,
    received_at: timeText(trace.receivedAt),
    processed_at: trace.processedAt === null ? null : timeText(trace.processedAt),
    users_accepted: trace.usersAccepted,
    users_rejected: trace.usersRejected,
    duplicate_of: trace.duplicateOf,
    key_id: trace.keyId,
    users: trace.users.map((user) => tracedUserAnswer(user, people)),
  };
}

function tracedUserAnswer(user: TracedUser, people: People | undefined): Json {
  return {
    userIndex: user.userIndex,
    status: user.status,
    profile_id: user.profileId,
    events: user.events,
    duplicate_events: user.duplicateEvents > 0 ? user.duplicateEvents : undefined,
    merged: user.merged.map(({ from, into }) => ({ from, into })),
    warnings: user.warnings,
    message: user.message,
    person: personAnswer(people, user.profileId),
  };
}
