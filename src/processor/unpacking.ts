/**
 * Prepared records out of the memory that they were packed into: see `packing.ts`, which has the order.
 *
 * The texts that come out are slices, and a slice keeps the whole string in memory: whoever keeps one for long makes
 * another text of it first.
 */

import {
  IDENTIFIER_TYPES,
  type IdentifierType,
  KEY_KINDS,
  type KeyKind,
  type MatchKey,
  type Origin,
} from '../model.ts';
import type { RecordHeader, RejectionToStore, StatementToStore } from '../store-writer.ts';
import type { Packed } from './packer.ts';
import { AMOUNT, AMOUNT_KINDS, type Amount, NO_JUNK, USER } from './packing.ts';
import type { PreparedEvent, PreparedRecord, PreparedUser } from './prepare.ts';
import { Unpacker } from './unpacker.ts';

/** Most lists are empty. */
const NONE: readonly never[] = [];

export function unpack(packed: Packed): readonly PreparedRecord[] {
  const unpacker = new Unpacker(packed);
  const records: PreparedRecord[] = [];
  while (unpacker.at < packed.integers.length) records.push(unpackRecord(unpacker));
  return records;
}

function unpackRecord(unpacker: Unpacker): PreparedRecord {
  const header = unpackHeader(unpacker);
  return {
    header,
    users: listOf(unpacker, () => unpackUser(unpacker, header)),
    rejections: listOf(unpacker, unpackRejection),
  };
}

function listOf<T>(unpacker: Unpacker, unpackItem: (unpacker: Unpacker) => T): readonly T[] {
  let left = unpacker.integer();
  if (left === 0) return NONE;
  const items: T[] = [];
  for (; left > 0; left--) items.push(unpackItem(unpacker));
  return items;
}

function unpackHeader(unpacker: Unpacker): RecordHeader {
  return {
    position: unpacker.number(),
    receivedAt: unpacker.number(),
    partition: unpacker.integer(),
    keyKind: KEY_KINDS[unpacker.integer()] as KeyKind,
    firstUserIndex: unpacker.integer(),
    usersAccepted: unpacker.integer(),
    usersRejected: unpacker.integer(),
    eventsAccepted: unpacker.integer(),
    tenantId: unpacker.word(),
    keyId: unpacker.word(),
    traceId: unpacker.text(),
    idempotencyKey: unpacker.optionalText(),
    bodyHash: unpacker.optionalText(),
  };
}

function unpackRejection(unpacker: Unpacker): RejectionToStore {
  return { userIndex: unpacker.integer(), message: unpacker.text(), payload: unpacker.text() };
}

function unpackUser(unpacker: Unpacker, { receivedAt, traceId, keyKind }: RecordHeader): PreparedUser {
  const origin: Origin = { receivedAt, traceId, userIndex: unpacker.integer() };
  const statement = unpackStatement(unpacker);
  const junk = unpackJunk(unpacker.integer());
  const count = unpacker.integer();
  const events: PreparedEvent[] = [];
  for (let index = 0; index < count; index++) events.push(unpackEvent(unpacker, index));
  const keys = listOf(unpacker, unpackKey);
  return { origin, keyKind, junk, events, statement, keys };
}

function unpackStatement(unpacker: Unpacker): StatementToStore | null {
  const names = unpacker.optionalWord();
  if (names === null) {
    unpacker.goTo(unpacker.at + USER.junk - USER.fields);
    return null;
  }
  return { names, fields: unpacker.text(), properties: unpacker.text(), isCut: unpacker.integer() === 1 };
}

function unpackJunk(bits: number): readonly IdentifierType[] {
  return bits === NO_JUNK ? NONE : IDENTIFIER_TYPES.filter((_type, index) => (bits & (1 << index)) !== 0);
}

function unpackEvent(unpacker: Unpacker, eventIndex: number): PreparedEvent {
  const name = unpacker.word();
  const properties = unpacker.text();
  const eventId = unpacker.optionalText();
  const kinds = unpacker.integer();
  // No word is no revenue, which is the empty text.
  const currency = unpacker.word();
  const timestamp = unpacker.number();
  const revenue = unpackAmount(unpacker, Math.trunc(kinds / AMOUNT_KINDS));
  const value = unpackAmount(unpacker, kinds % AMOUNT_KINDS);
  return { eventIndex, timestamp, revenue, currency, value, name, properties, eventId };
}

function unpackAmount(unpacker: Unpacker, kind: number): Amount {
  if (kind === AMOUNT.none) return null;
  return kind === AMOUNT.number ? unpacker.number() : unpacker.text();
}

function unpackKey(unpacker: Unpacker): MatchKey {
  const type = IDENTIFIER_TYPES[unpacker.integer()] as IdentifierType;
  const value = unpacker.text();
  return { type, value, raw: unpacker.optionalText() ?? value };
}
