/**
 * Events and profiles as exports show them: as JSON text, exactly that of the HTTP API, and as rows of columns with the
 * same names. What came as JSON stays the text that it was, so numbers keep their digits.
 */

import { type Json, jsonText, raw } from '../api/json-text.ts';
import { eventJson, profileJson } from '../api/stored-json.ts';
import { IDENTIFIER_TYPES } from '../model.ts';
import type { Provenance, StoredEvent, StoredProfile } from '../store.ts';

/** A cell: text, a number, a time, or null. Numbers are JSON text, so that text formats keep every digit. */
export type Cell =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'number'; readonly text: string }
  | { readonly kind: 'time'; readonly time: number }
  | null;

export interface Column {
  readonly name: string;
  readonly kind: 'text' | 'integer' | 'number' | 'time';
  readonly nullable: boolean;
}

/** How rows of one kind are exported. */
export interface Shape<Row> {
  readonly noun: string;
  readonly columns: readonly Column[];
  json(row: Row): string;
  cells(row: Row): Cell[];
}

const text = (name: string, nullable = false): Column => ({ name, kind: 'text', nullable });
const time = (name: string): Column => ({ name, kind: 'time', nullable: false });

export const EVENT_SHAPE: Shape<StoredEvent> = {
  noun: 'event',
  columns: [
    text('id'),
    text('event_name'),
    time('timestamp'),
    time('received_at'),
    { name: 'revenue', kind: 'number', nullable: true },
    { name: 'event_value', kind: 'number', nullable: true },
    text('properties'),
    text('profile_id', true),
    text('trace_id'),
    { name: 'userIndex', kind: 'integer', nullable: false },
    text('key_id'),
  ],
  json: (event) => jsonText(eventJson(event)),
  cells: (event) => [
    textCell(event.id),
    textCell(event.eventName),
    { kind: 'time', time: event.timestamp },
    { kind: 'time', time: event.receivedAt },
    numberCell(event.revenue),
    numberCell(event.eventValue),
    textCell(event.properties),
    event.profileId === null ? null : textCell(event.profileId),
    textCell(event.traceId),
    numberCell(String(event.userIndex)),
    textCell(event.keyId),
  ],
};

export const PROFILE_SHAPE: Shape<StoredProfile> = {
  noun: 'profile',
  columns: [
    text('id'),
    text('merged_ids'),
    ...IDENTIFIER_TYPES.map((type) => text(type)),
    text('profile_fields'),
    text('user_properties'),
    time('first_seen'),
    time('last_seen'),
    { name: 'event_count', kind: 'integer', nullable: false },
  ],
  json: (profile) => jsonText(profileJson(profile, false)),
  cells: (profile) => [
    textCell(profile.id),
    textCell(JSON.stringify(profile.mergedIds)),
    ...IDENTIFIER_TYPES.map((type) => textCell(JSON.stringify(profile.identifiers[type]))),
    textCell(valuesText(profile.profileFields)),
    textCell(valuesText(profile.userProperties)),
    { kind: 'time', time: profile.firstSeen },
    { kind: 'time', time: profile.lastSeen },
    numberCell(String(profile.eventCount)),
  ],
};

function textCell(value: string): Cell {
  return { kind: 'text', text: value };
}

function numberCell(value: string | null): Cell {
  return value === null ? null : { kind: 'number', text: value };
}

function valuesText(values: ReadonlyMap<string, Provenance>): string {
  return jsonText(new Map([...values].map(([name, { value }]): [string, Json] => [name, raw(value)])));
}
