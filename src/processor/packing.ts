/**
 * Prepared records in a form that goes from one thread to another for next to nothing: all texts in one long string with
 * their lengths beside it, all numbers in one array whose memory is handed over. A clone of the objects would cost as
 * much as parsing the bodies did. `unpack(pack(records))` equals `records`.
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
  type PersonMark,
} from '../model.ts';
import type { RecordHeader, RejectionToStore, StatementToStore } from '../store-writer.ts';
import { type Packed, Packer, Unpacker } from './packer.ts';
import type { PreparedEvent, PreparedRecord, PreparedUser } from './prepare.ts';

/** One by one, so that records which are made on the way can be forgotten on the way: that is what keeps them cheap. */
export function pack(records: Iterable<PreparedRecord>): Packed {
  const packer = new Packer();
  packer.counted(records, packRecord);
  return packer.finish();
}

export function unpack(packed: Packed): readonly PreparedRecord[] {
  return new Unpacker(packed).list(unpackRecord);
}

function packRecord(packer: Packer, { header, users, rejections }: PreparedRecord): void {
  packer.number(header.partition);
  packer.number(header.position);
  packer.number(header.receivedAt);
  packer.number(KEY_KINDS.indexOf(header.keyKind));
  packer.number(header.firstUserIndex);
  packer.number(header.usersAccepted);
  packer.number(header.usersRejected);
  packer.number(header.eventsAccepted);
  packer.text(header.tenantId);
  packer.text(header.traceId);
  packer.text(header.keyId);
  packer.text(header.idempotencyKey);
  packer.list(users, packUser);
  packer.list(rejections, packRejection);
}

function unpackRecord(unpacker: Unpacker): PreparedRecord {
  const header: RecordHeader = {
    partition: unpacker.number(),
    position: unpacker.number(),
    receivedAt: unpacker.number(),
    keyKind: KEY_KINDS[unpacker.number()] as KeyKind,
    firstUserIndex: unpacker.number(),
    usersAccepted: unpacker.number(),
    usersRejected: unpacker.number(),
    eventsAccepted: unpacker.number(),
    tenantId: unpacker.text(),
    traceId: unpacker.text(),
    keyId: unpacker.text(),
    idempotencyKey: unpacker.optionalText(),
  };
  const users = unpacker.list(() => unpackUser(unpacker, header));
  return { header, users, rejections: unpacker.list(unpackRejection) };
}

function packUser(packer: Packer, user: PreparedUser): void {
  packer.number(user.origin.userIndex);
  packer.number(user.person.a);
  packer.number(user.person.b);
  packer.number(user.person.c);
  packer.list(user.junk, packType);
  packer.list(user.events, packEvent);
  packer.number(user.statement === null ? 0 : 1);
  if (user.statement !== null) packStatement(packer, user.statement);
  packer.skippable(() => packer.list(user.keys, packKey));
}

function unpackUser(unpacker: Unpacker, { receivedAt, traceId, keyKind }: RecordHeader): PreparedUser {
  const origin = { receivedAt, traceId, userIndex: unpacker.number() };
  const person: PersonMark = { a: unpacker.number(), b: unpacker.number(), c: unpacker.number() };
  const junk = unpacker.list(unpackType);
  const events = unpacker.list(unpackEvent);
  const statement = unpacker.number() === 0 ? null : unpackStatement(unpacker);
  return new UnpackedUser({ origin, keyKind, person, junk, events, statement }, unpacker.skip());
}

/** Who is known by all keys together is not looked up by each of them; so those stay packed until they are asked for. */
class UnpackedUser implements PreparedUser {
  readonly origin: Origin;
  readonly keyKind: KeyKind;
  readonly person: PersonMark;
  readonly junk: readonly IdentifierType[];
  readonly events: readonly PreparedEvent[];
  readonly statement: StatementToStore | null;
  #keys: readonly MatchKey[] | Unpacker;

  constructor(user: Omit<PreparedUser, 'keys'>, keys: Unpacker) {
    this.origin = user.origin;
    this.keyKind = user.keyKind;
    this.person = user.person;
    this.junk = user.junk;
    this.events = user.events;
    this.statement = user.statement;
    this.#keys = keys;
  }

  get keys(): readonly MatchKey[] {
    if (this.#keys instanceof Unpacker) this.#keys = this.#keys.list(unpackKey);
    return this.#keys;
  }
}

function packKey(packer: Packer, { type, value, raw }: MatchKey): void {
  packType(packer, type);
  packer.text(value);
  packer.text(raw === value ? null : raw);
}

function unpackKey(unpacker: Unpacker): MatchKey {
  const type = unpackType(unpacker);
  const value = unpacker.text();
  return { type, value, raw: unpacker.optionalText() ?? value };
}

function packType(packer: Packer, type: IdentifierType): void {
  packer.number(IDENTIFIER_TYPES.indexOf(type));
}

function unpackType(unpacker: Unpacker): IdentifierType {
  return IDENTIFIER_TYPES[unpacker.number()] as IdentifierType;
}

function packEvent(packer: Packer, event: PreparedEvent): void {
  packer.number(event.eventIndex);
  packer.number(event.timestamp);
  packer.amount(event.revenue);
  packer.amount(event.value);
  packer.text(event.name);
  packer.text(event.properties);
  packer.text(event.eventId);
}

function unpackEvent(unpacker: Unpacker): PreparedEvent {
  return {
    eventIndex: unpacker.number(),
    timestamp: unpacker.number(),
    revenue: unpacker.amount(),
    value: unpacker.amount(),
    name: unpacker.text(),
    properties: unpacker.text(),
    eventId: unpacker.optionalText(),
  };
}

function packStatement(packer: Packer, { names, fields, properties, isCut }: StatementToStore): void {
  packer.number(isCut ? 1 : 0);
  packer.text(names);
  packer.text(fields);
  packer.text(properties);
}

function unpackStatement(unpacker: Unpacker): StatementToStore {
  const isCut = unpacker.number() === 1;
  return { names: unpacker.text(), fields: unpacker.text(), properties: unpacker.text(), isCut };
}

function packRejection(packer: Packer, { userIndex, message, payload }: RejectionToStore): void {
  packer.number(userIndex);
  packer.text(message);
  packer.text(payload);
}

function unpackRejection(unpacker: Unpacker): RejectionToStore {
  return { userIndex: unpacker.number(), message: unpacker.text(), payload: unpacker.text() };
}
