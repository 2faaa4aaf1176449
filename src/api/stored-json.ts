/**
 * How profiles and events look in a response: names as the contract has them, times in UTC with milliseconds, values of
 * clients as they came. Routes check it against their schemas; the command line prints the same. Written out, and not
 * taken from a schema (`rowJson`), because exports print millions of them. Pure.
 */

import { IDENTIFIER_TYPES } from '../model.ts';
import type { Page, Provenance, StoredEvent, StoredProfile } from '../store.ts';
import { raw, rawOrNull, timeText } from './json-text.ts';
import { type People, personJson } from './person-of-event.ts';

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
    revenue: rawOrNull(event.revenue),
    event_value: rawOrNull(event.eventValue),
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
