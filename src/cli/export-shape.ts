/**
 * Events and profiles as exports show them: as JSON text, exactly that of the HTTP API, and as rows of columns with the
 * same names. What came as JSON stays the text that it was, so numbers keep their digits.
 */

import { jsonText, raw } from '../api/json-text.ts';
import { eventJson, profileJson } from '../api/stored-json.ts';
import { IDENTIFIER_TYPES } from '../model.ts';
import type { Provenance, StoredEvent, StoredProfile } from '../store.ts';

/** Times are numbers, in milliseconds. Numbers are JSON text, so that text formats keep every digit. */
export type Cell = string | number | null;

export interface Column<Row> {
  readonly name: string;
  readonly kind: 'text' | 'integer' | 'number' | 'time';
  readonly nullable: boolean;
  readonly cell: (row: Row) => Cell;
}

/** How rows of one kind are exported. */
export interface Shape<Row> {
  readonly noun: string;
  readonly columns: readonly Column<Row>[];
  json(row: Row): string;
}

function column<Row>(
  name: string,
  kind: Column<Row>['kind'],
  cell: Column<Row>['cell'],
  nullable = false,
): Column<Row> {
  return { name, kind, nullable, cell };
}

export const EVENT_SHAPE: Shape<StoredEvent> = {
  noun: 'event',
  columns: [
    column('id', 'text', ({ id }) => id),
    column('event_name', 'text', ({ eventName }) => eventName),
    column('timestamp', 'time', ({ timestamp }) => timestamp),
    column('received_at', 'time', ({ receivedAt }) => receivedAt),
    column('revenue', 'number', ({ revenue }) => revenue, true),
    column('event_value', 'number', ({ eventValue }) => eventValue, true),
    column('properties', 'text', ({ properties }) => properties),
    column('profile_id', 'text', ({ profileId }) => profileId, true),
    column('trace_id', 'text', ({ traceId }) => traceId),
    column('userIndex', 'integer', ({ userIndex }) => String(userIndex)),
    column('key_id', 'text', ({ keyId }) => keyId),
  ],
  json: (event) => jsonText(eventJson(event)),
};

export const PROFILE_SHAPE: Shape<StoredProfile> = {
  noun: 'profile',
  columns: [
    column('id', 'text', ({ id }) => id),
    column('merged_ids', 'text', ({ mergedIds }) => JSON.stringify(mergedIds)),
    ...IDENTIFIER_TYPES.map((type) =>
      column<StoredProfile>(type, 'text', ({ identifiers }) => JSON.stringify(identifiers[type])),
    ),
    column('profile_fields', 'text', ({ profileFields }) => valuesText(profileFields)),
    column('user_properties', 'text', ({ userProperties }) => valuesText(userProperties)),
    column('first_seen', 'time', ({ firstSeen }) => firstSeen),
    column('last_seen', 'time', ({ lastSeen }) => lastSeen),
    column('event_count', 'integer', ({ eventCount }) => String(eventCount)),
  ],
  json: (profile) => jsonText(profileJson(profile, false)),
};

function valuesText(values: ReadonlyMap<string, Provenance>): string {
  return jsonText(new Map([...values].map(([name, { value }]) => [name, raw(value)])));
}
