/**
 * Serialises prepared records for another thread (`packer.ts`): a structured clone of the objects would cost as much as
 * parsing the bodies did. Records are packed as objects (`packRecord`), or piece by piece by a caller that makes no
 * objects: `packHeader`, the number of users, for each `roomForUser`, its events and its keys, and no rejections. What
 * `unpack` (`unpacking.ts`) makes of a packed record equals the record.
 */

import { FORMATS, IDENTIFIER_TYPES, KEY_KINDS } from '../model.ts';
import type { RecordHeader, RejectionToStore } from '../store-writer.ts';
import { NO_REVENUE } from '../views/currency.ts';
import { NO_TEXT, type Packer } from './packer.ts';
import type { PreparedRecord, PreparedUser } from './prepared.ts';

/** Offsets of the fixed fields of a user. */
const USER = {
  index: 0,
  shape: 1,
  fields: 2,
  properties: 4,
  isCut: 6,
  junk: 7,
  events: 8,
  size: 9,
} as const;
const EVENT = { name: 0, properties: 1, id: 3, amounts: 5, currency: 6, size: 7 } as const;
const KEY = { type: 0, value: 1, raw: 3, size: 5 } as const;
/** How an amount is packed; two of them in one integer. */
export const AMOUNT = { none: 0, number: 1, text: 2 } as const;
export const AMOUNT_KINDS = 3;

export const NO_JUNK = 0;

export type Amount = number | string | null;

export function packRecord(packer: Packer, { header, users, rejections }: PreparedRecord): void {
  packHeader(packer, header);
  const count = packer.room(1);
  for (const user of users) packUser(packer, user);
  packer.set(count, users.length);
  packer.number(rejections.length);
  for (const rejection of rejections) packRejection(packer, rejection);
}

export function packHeader(packer: Packer, header: RecordHeader): void {
  packer.number(header.position);
  packer.number(header.receivedAt);
  packer.number(header.partition);
  packer.number(KEY_KINDS.indexOf(header.keyKind));
  packer.number(header.firstUserIndex);
  packer.number(header.usersAccepted);
  packer.number(header.usersRejected);
  packer.number(header.eventsAccepted);
  packer.number(packer.word(header.tenantId));
  packer.number(packer.word(header.keyId));
  packer.text(header.traceId);
  packer.text(header.idempotencyKey);
  packer.text(header.bodyHash);
  packer.number(header.format === undefined ? 0 : FORMATS.indexOf(header.format));
  packer.number(header.droppedByClient ?? 0);
}

export function packNoRejections(packer: Packer): void {
  packer.number(0);
}

function packRejection(packer: Packer, { userIndex, message, payload }: RejectionToStore): void {
  packer.number(userIndex);
  packer.text(message);
  packer.text(payload);
}

function packUser(packer: Packer, { origin, junk, events, propertyUpdate, keys }: PreparedUser): void {
  const at = roomForUser(packer, origin.userIndex);
  let junkBits = NO_JUNK;
  for (const type of junk) junkBits |= 1 << IDENTIFIER_TYPES.indexOf(type);
  setJunk(packer, at, junkBits);
  if (propertyUpdate === null) {
    setNoUpdate(packer, at);
  } else {
    const { shape, fields, properties, isCut } = propertyUpdate;
    const fieldsStart = packer.other(fields);
    const propertiesStart = packer.other(properties);
    setShape(packer, at, packer.word(shape), isCut);
    setFields(packer, at, fieldsStart, fieldsStart + fields.length);
    setProperties(packer, at, propertiesStart, propertiesStart + properties.length);
  }
  setEventCount(packer, at, events.length);
  for (const { name, properties, eventId, timestamp, revenue, value, currency } of events) {
    const start = packer.other(properties);
    const idStart = eventId === null ? NO_TEXT : packer.other(eventId);
    const idEnd = eventId === null ? NO_TEXT : idStart + eventId.length;
    const end = start + properties.length;
    const currencyWord = currency === NO_REVENUE ? NO_TEXT : packer.word(currency);
    packEvent(packer, packer.word(name), start, end, idStart, idEnd, timestamp, revenue, value, currencyWord);
  }
  packer.number(keys.length);
  for (const { type, value, raw } of keys) {
    const start = packer.other(value);
    const rawStart = raw === value ? NO_TEXT : packer.other(raw);
    const rawEnd = raw === value ? NO_TEXT : rawStart + raw.length;
    packKey(packer, IDENTIFIER_TYPES.indexOf(type), start, start + value.length, rawStart, rawEnd);
  }
}

/** Room for the fixed fields of a user; the caller sets all of them. */
export function roomForUser(packer: Packer, userIndex: number): number {
  const at = packer.room(USER.size);
  packer.set(at + USER.index, userIndex);
  return at;
}

/** `junk` has one bit for each identifier type. */
export function setJunk(packer: Packer, user: number, junk: number): void {
  packer.set(user + USER.junk, junk);
}

export function setNoUpdate(packer: Packer, user: number): void {
  setShape(packer, user, NO_TEXT, false);
  setFields(packer, user, NO_TEXT, NO_TEXT);
  setProperties(packer, user, NO_TEXT, NO_TEXT);
}

/** `shape` is a word (`packer.ts`). */
export function setShape(packer: Packer, user: number, shape: number, isCut: boolean): void {
  packer.set(user + USER.shape, shape);
  packer.set(user + USER.isCut, isCut ? 1 : 0);
}

export function setFields(packer: Packer, user: number, start: number, end: number): void {
  packer.set(user + USER.fields, start);
  packer.set(user + USER.fields + 1, end);
}

export function setProperties(packer: Packer, user: number, start: number, end: number): void {
  packer.set(user + USER.properties, start);
  packer.set(user + USER.properties + 1, end);
}

export function setEventCount(packer: Packer, user: number, events: number): void {
  packer.set(user + USER.events, events);
}

/** Of the user that came last. The name is a word. */
export function packEvent(
  packer: Packer,
  name: number,
  start: number,
  end: number,
  idStart: number,
  idEnd: number,
  timestamp: number,
  revenue: Amount,
  value: Amount,
  currency: number,
): void {
  const at = packer.room(EVENT.size);
  packer.set(at + EVENT.name, name);
  packer.set(at + EVENT.properties, start);
  packer.set(at + EVENT.properties + 1, end);
  packer.set(at + EVENT.id, idStart);
  packer.set(at + EVENT.id + 1, idEnd);
  packer.set(at + EVENT.amounts, kindOf(revenue) * AMOUNT_KINDS + kindOf(value));
  packer.set(at + EVENT.currency, currency);
  packer.number(timestamp);
  packAmount(packer, revenue);
  packAmount(packer, value);
}

function kindOf(amount: Amount): number {
  if (amount === null) return AMOUNT.none;
  return typeof amount === 'number' ? AMOUNT.number : AMOUNT.text;
}

function packAmount(packer: Packer, amount: Amount): void {
  if (typeof amount === 'number') packer.number(amount);
  else if (amount !== null) packer.text(amount);
}

/** Of the user whose events came last, behind their number. Strongest first. */
export function packKey(
  packer: Packer,
  type: number,
  start: number,
  end: number,
  rawStart: number,
  rawEnd: number,
): void {
  const at = packer.room(KEY.size);
  packer.set(at + KEY.type, type);
  packer.set(at + KEY.value, start);
  packer.set(at + KEY.value + 1, end);
  packer.set(at + KEY.raw, rawStart);
  packer.set(at + KEY.raw + 1, rawEnd);
}
