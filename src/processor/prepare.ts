/**
 * From a log record to users that identity and the store can work with: parsed, with match keys, property updates and
 * events ready to be stored. Pure. The record was validated at the edge, so what does not fit here is a bug and throws;
 * the record then becomes a dead letter.
 */

import type { IdentityClaim } from '../identity/graph.ts';
import { type MatchOptions, matchKeysOf } from '../identity/match-keys.ts';
import { propertyUpdateOf } from '../identity/property-updates.ts';
import { bodyHashOf } from '../log/body-hash.ts';
import { type LogRecord, NO_TENANT } from '../log.ts';
import { type IdentifierType, type KeyKind, LIMITS, type Origin } from '../model.ts';
import type { EventToStore, PropertyUpdateToStore, RecordHeader, RejectionToStore } from '../store-writer.ts';
import { currencyOf, NO_REVENUE } from '../views/currency.ts';
import { parseExact } from '../json/exact-numbers.ts';
import { decodeUtf8 } from '../json/utf8.ts';
import { parseIso8601 } from '../validation/iso8601.ts';

export interface PreparedEvent extends EventToStore {
  /** `$event_id`, by which the same event is recognised. */
  readonly eventId: string | null;
}

export interface PreparedUser extends IdentityClaim {
  readonly junk: readonly IdentifierType[];
  readonly events: readonly PreparedEvent[];
  readonly propertyUpdate: PropertyUpdateToStore | null;
}

/** A record as the rest of the processor works on it. */
export interface PreparedRecord {
  readonly header: RecordHeader;
  readonly users: readonly PreparedUser[];
  readonly rejections: readonly RejectionToStore[];
}

type JsonObject = Readonly<Record<string, unknown>>;

export function headerOf(record: LogRecord): RecordHeader {
  const header = {
    partition: record.partition,
    position: record.position,
    tenantId: record.tenantId,
    traceId: record.traceId,
    receivedAt: record.receivedAt,
    keyId: record.keyId,
    keyKind: record.keyKind,
    idempotencyKey: record.idempotencyKey,
    bodyHash: record.idempotencyKey === null ? null : (record.bodyHash ?? bodyHashOf(record.body)),
    firstUserIndex: record.firstUserIndex,
    usersAccepted: record.userCount - record.rejections.length,
    usersRejected: record.rejections.length,
    eventsAccepted: record.eventCount,
  };
  const { format, droppedByClient } = record;
  if (format === undefined && droppedByClient === undefined) return header;
  return { ...header, ...(format && { format }), ...(droppedByClient && { droppedByClient }) };
}

/** Throws if the record is not what the edge accepted. */
export function prepareRecord(record: LogRecord, options: MatchOptions): PreparedRecord {
  if (record.tenantId === NO_TENANT) throw new Error('another program wrote this message into the topic');
  const { receivedAt, traceId, keyKind, firstUserIndex } = record;
  const messages = new Map(record.rejections.map(({ userIndex, message }) => [userIndex, message]));
  const users: PreparedUser[] = [];
  const rejections: RejectionToStore[] = [];
  let events = 0;
  for (const [index, user] of usersOf(record.body).entries()) {
    const userIndex = firstUserIndex + index;
    const message = messages.get(userIndex);
    if (message !== undefined) {
      rejections.push({ userIndex, message, payload: JSON.stringify(user) });
      continue;
    }
    const prepared = prepareUser(user, { receivedAt, traceId, userIndex }, keyKind, options);
    users.push(prepared);
    events += prepared.events.length;
  }
  checkCounts(record, users.length + rejections.length, events);
  return { header: headerOf(record), users, rejections };
}

/** Throws if the edge has counted something else. */
function checkCounts({ userCount, eventCount }: LogRecord, users: number, events: number): void {
  if (users !== userCount) throw new Error(`the body has ${users} users where the edge counted ${userCount}`);
  if (events !== eventCount) {
    throw new Error(`the accepted users have ${events} events where the edge counted ${eventCount}`);
  }
}

/** Without the message of `JSON.parse`, which quotes the body: personal data must not get into logs. */
function usersOf(body: Uint8Array): readonly JsonObject[] {
  const text = decodeUtf8(body);
  try {
    return (parseExact(text.startsWith('\uFEFF') ? text.slice(1) : text) as { users: readonly JsonObject[] }).users;
  } catch {
    throw new Error('the body is not JSON');
  }
}

function prepareUser(user: JsonObject, origin: Origin, keyKind: KeyKind, options: MatchOptions): PreparedUser {
  const identifiers = user.identifiers as JsonObject;
  const { keys, junk } = matchKeysOf(identifiers, options);
  const { fields, properties } = propertyUpdateOf(identifiers, user.user_properties as JsonObject | null | undefined);
  const given = user.events as readonly JsonObject[];
  const events: PreparedEvent[] = [];
  for (let index = 0; index < given.length; index++) {
    events.push(prepareEvent(given[index] as JsonObject, index, origin.receivedAt));
  }
  return {
    origin,
    keyKind,
    keys,
    junk,
    events,
    propertyUpdate: propertyUpdateToStore(fields, properties),
  };
}

/** Null when the user sets nothing. */
function propertyUpdateToStore(allFields: JsonObject, allProperties: JsonObject): PropertyUpdateToStore | null {
  const fields = cut(allFields);
  const properties = cut(allProperties);
  const [fieldNames, propertyNames] = [namesOf(fields), namesOf(properties)];
  if (fieldNames === '' && propertyNames === '') return null;
  const shape = propertyShape(fieldNames, propertyNames);
  const isCut = fields !== allFields || properties !== allProperties;
  return { shape, fields: JSON.stringify(fields), properties: JSON.stringify(properties), isCut };
}

/**
 * All names that a property update sets, as one text: the same for the same names in the same order, and only for them.
 * Each name is followed by a NUL, which no name contains. A name may be empty, so a NUL cannot mark where the fields
 * end; their length does.
 */
export function propertyShape(fields: string, properties: string): string {
  return `${fields.length}\0${fields}${properties}`;
}

function namesOf(values: JsonObject): string {
  let names = '';
  for (const name in values) names += `${name}\0`;
  return names;
}

/** The same object if it has not too many names. */
function cut(values: JsonObject): JsonObject {
  let names = 0;
  for (const _name in values) names++;
  if (names <= LIMITS.namesPerNodeMax) return values;
  return Object.fromEntries(Object.entries(values).slice(0, LIMITS.namesPerNodeMax));
}

function prepareEvent(event: JsonObject, eventIndex: number, receivedAt: number): PreparedEvent {
  // Rest makes data properties of everything, `__proto__` included.
  const { event_name: name, timestamp, revenue, event_value: value, ...properties } = event;
  const eventId = properties.$event_id;
  const amount = amountOf(revenue);
  return {
    eventIndex,
    name: name as string,
    timestamp: typeof timestamp === 'string' ? timeOf(timestamp) : receivedAt,
    revenue: amount,
    currency: amount === null ? NO_REVENUE : currencyOf(properties.currency),
    value: amountOf(value),
    properties: JSON.stringify(properties),
    eventId: typeof eventId === 'string' ? eventId : null,
  };
}

function timeOf(timestamp: string): number {
  const time = parseIso8601(timestamp);
  if (time === undefined) throw new Error('a timestamp that the edge accepted cannot be read');
  return time;
}

/** A number with more digits than a double holds stays the text that it was. */
function amountOf(value: unknown): number | string | null {
  if (typeof value === 'number') return value;
  return value === null || value === undefined ? null : JSON.stringify(value);
}
