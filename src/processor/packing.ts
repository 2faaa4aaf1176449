/**
 * Prepared records in a form that goes from one thread to another for next to nothing: all texts in one long string with
 * their lengths beside it, all numbers in one array whose memory is handed over. A clone of the objects would cost as
 * much as parsing the bodies did. `unpack(pack(records))` equals `records`.
 *
 * The texts that come out are slices, and a slice keeps the whole string in memory: whoever keeps one for long makes
 * another text of it first.
 */

import { IDENTIFIER_TYPES, type IdentifierType, KEY_KINDS, type KeyKind, type MatchKey } from '../model.ts';
import type { RejectionToStore, StatementToStore } from '../store-writer.ts';
import type { PreparedEvent, PreparedRecord, PreparedUser } from './prepare.ts';

export interface Packed {
  readonly text: string;
  /** Of each text in turn; -1 stands for null. */
  readonly lengths: Int32Array<ArrayBuffer>;
  readonly numbers: Float64Array<ArrayBuffer>;
}

export function pack(records: readonly PreparedRecord[]): Packed {
  const packer = new Packer();
  packer.list(records, packRecord);
  return packer.finish();
}

export function unpack(packed: Packed): PreparedRecord[] {
  return new Unpacker(packed).list(unpackRecord);
}

/** An amount is a number, a text with more digits than a double holds, or null. */
const AMOUNT = { number: 0, text: 1, none: 2 } as const;

class Packer {
  readonly #texts: string[] = [];
  readonly #lengths: number[] = [];
  readonly #numbers: number[] = [];

  text(value: string | null): void {
    this.#lengths.push(value === null ? -1 : value.length);
    if (value !== null) this.#texts.push(value);
  }

  number(value: number): void {
    this.#numbers.push(value);
  }

  amount(value: number | string | null): void {
    this.number(value === null ? AMOUNT.none : typeof value === 'number' ? AMOUNT.number : AMOUNT.text);
    if (typeof value === 'number') this.number(value);
    else if (value !== null) this.text(value);
  }

  list<T>(items: readonly T[], packItem: (packer: Packer, item: T) => void): void {
    this.number(items.length);
    for (const item of items) packItem(this, item);
  }

  finish(): Packed {
    return {
      text: this.#texts.join(''),
      lengths: Int32Array.from(this.#lengths),
      numbers: Float64Array.from(this.#numbers),
    };
  }
}

class Unpacker {
  readonly #packed: Packed;
  #at = 0;
  #nextLength = 0;
  #nextNumber = 0;

  constructor(packed: Packed) {
    this.#packed = packed;
  }

  optionalText(): string | null {
    const length = this.#packed.lengths[this.#nextLength++] as number;
    if (length < 0) return null;
    const start = this.#at;
    this.#at += length;
    return this.#packed.text.substring(start, this.#at);
  }

  text(): string {
    return this.optionalText() ?? '';
  }

  number(): number {
    return this.#packed.numbers[this.#nextNumber++] as number;
  }

  amount(): number | string | null {
    const kind = this.number();
    if (kind === AMOUNT.number) return this.number();
    return kind === AMOUNT.text ? this.text() : null;
  }

  list<T>(unpackItem: (unpacker: Unpacker) => T): T[] {
    const items: T[] = [];
    for (let left = this.number(); left > 0; left--) items.push(unpackItem(this));
    return items;
  }
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
  const header = {
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
  return { header, users: unpacker.list(unpackUser), rejections: unpacker.list(unpackRejection) };
}

function packUser(packer: Packer, user: PreparedUser): void {
  packer.number(user.userIndex);
  packer.text(user.person);
  packer.list(user.keys, packKey);
  packer.list(user.junk, packType);
  packer.list(user.events, packEvent);
  packer.number(user.statement === null ? 0 : 1);
  if (user.statement !== null) packStatement(packer, user.statement);
}

function unpackUser(unpacker: Unpacker): PreparedUser {
  return {
    userIndex: unpacker.number(),
    person: unpacker.text(),
    keys: unpacker.list(unpackKey),
    junk: unpacker.list(unpackType),
    events: unpacker.list(unpackEvent),
    statement: unpacker.number() === 0 ? null : unpackStatement(unpacker),
  };
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

function packStatement(packer: Packer, { names, fields, properties }: StatementToStore): void {
  packer.text(names);
  packer.text(fields);
  packer.text(properties);
}

function unpackStatement(unpacker: Unpacker): StatementToStore {
  return { names: unpacker.text(), fields: unpacker.text(), properties: unpacker.text() };
}

function packRejection(packer: Packer, { userIndex, message, payload }: RejectionToStore): void {
  packer.number(userIndex);
  packer.text(message);
  packer.text(payload);
}

function unpackRejection(unpacker: Unpacker): RejectionToStore {
  return { userIndex: unpacker.number(), message: unpacker.text(), payload: unpacker.text() };
}
