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
} from '../model.ts';
import type { RecordHeader, RejectionToStore, StatementToStore } from '../store-writer.ts';
import type { PreparedEvent, PreparedRecord, PreparedUser } from './prepare.ts';

export interface Packed {
  readonly text: string;
  /** Of each text in turn; -1 stands for null. */
  readonly lengths: Int32Array<ArrayBuffer>;
  readonly numbers: Float64Array<ArrayBuffer>;
}

/** One by one, so that records which are made on the way can be forgotten on the way: that is what keeps them cheap. */
export function pack(records: Iterable<PreparedRecord>): Packed {
  const packer = new Packer();
  packer.counted(records, packRecord);
  return packer.finish();
}

export function unpack(packed: Packed): readonly PreparedRecord[] {
  return new Unpacker(packed).list(unpackRecord);
}

/** An amount is a number, a text with more digits than a double holds, or null. */
const AMOUNT = { number: 0, text: 1, none: 2 } as const;

/** Of a packer's arrays: about what a batch needs. */
const FIRST_CAPACITY = 65_536;

/** So few that they are still young when they are made into one. */
const LOOSE_TEXTS_MAX = 4_096;

/** Most lists are empty. */
const NONE: readonly never[] = [];

class Packer {
  /** Each made of many. */
  readonly #joined: string[] = [];
  #loose: string[] = [];
  #characters = 0;
  #lengths = new Int32Array(FIRST_CAPACITY);
  #lengthCount = 0;
  #numbers = new Float64Array(FIRST_CAPACITY);
  #numberCount = 0;

  text(value: string | null): void {
    if (this.#lengthCount === this.#lengths.length) this.#lengths = doubled(this.#lengths, Int32Array);
    this.#lengths[this.#lengthCount++] = value === null ? -1 : value.length;
    if (value === null) return;
    this.#loose.push(value);
    this.#characters += value.length;
    if (this.#loose.length === LOOSE_TEXTS_MAX) this.#join();
  }

  number(value: number): void {
    if (this.#numberCount === this.#numbers.length) this.#numbers = doubled(this.#numbers, Float64Array);
    this.#numbers[this.#numberCount++] = value;
  }

  amount(value: number | string | null): void {
    this.number(value === null ? AMOUNT.none : typeof value === 'number' ? AMOUNT.number : AMOUNT.text);
    if (typeof value === 'number') this.number(value);
    else if (value !== null) this.text(value);
  }

  /** What is packed meanwhile can be passed over as a whole. */
  skippable(packParts: () => void): void {
    const place = this.#numberCount;
    for (let n = 0; n < 3; n++) this.number(0);
    const [characters, lengths, numbers] = [this.#characters, this.#lengthCount, this.#numberCount];
    packParts();
    this.#numbers[place] = this.#characters - characters;
    this.#numbers[place + 1] = this.#lengthCount - lengths;
    this.#numbers[place + 2] = this.#numberCount - numbers;
  }

  list<T>(items: readonly T[], packItem: (packer: Packer, item: T) => void): void {
    this.number(items.length);
    for (const item of items) packItem(this, item);
  }

  /** Like `list`, for as many as there turn out to be. */
  counted<T>(items: Iterable<T>, packItem: (packer: Packer, item: T) => void): void {
    const place = this.#numberCount;
    this.number(0);
    let count = 0;
    for (const item of items) {
      packItem(this, item);
      count++;
    }
    this.#numbers[place] = count;
  }

  #join(): void {
    this.#joined.push(this.#loose.join(''));
    this.#loose = [];
  }

  finish(): Packed {
    this.#join();
    return {
      text: this.#joined.join(''),
      lengths: this.#lengths.slice(0, this.#lengthCount),
      numbers: this.#numbers.slice(0, this.#numberCount),
    };
  }
}

function doubled<T extends Int32Array | Float64Array>(array: T, Type: new (length: number) => T): T {
  const larger = new Type(array.length * 2);
  larger.set(array);
  return larger;
}

class Unpacker {
  readonly #packed: Packed;
  #at: number;
  #nextLength: number;
  #nextNumber: number;

  constructor(packed: Packed, at = 0, nextLength = 0, nextNumber = 0) {
    this.#packed = packed;
    this.#at = at;
    this.#nextLength = nextLength;
    this.#nextNumber = nextNumber;
  }

  /** Passes over what was packed as skippable; whoever wants it all the same has another unpacker for it. */
  skip(): Unpacker {
    const [characters, lengths, numbers] = [this.number(), this.number(), this.number()];
    const skipped = new Unpacker(this.#packed, this.#at, this.#nextLength, this.#nextNumber);
    this.#at += characters;
    this.#nextLength += lengths;
    this.#nextNumber += numbers;
    return skipped;
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

  list<T>(unpackItem: (unpacker: Unpacker) => T): readonly T[] {
    let left = this.number();
    if (left === 0) return NONE;
    const items: T[] = [];
    for (; left > 0; left--) items.push(unpackItem(this));
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
  packer.text(user.person);
  packer.list(user.junk, packType);
  packer.list(user.events, packEvent);
  packer.number(user.statement === null ? 0 : 1);
  if (user.statement !== null) packStatement(packer, user.statement);
  packer.skippable(() => packer.list(user.keys, packKey));
}

function unpackUser(unpacker: Unpacker, { receivedAt, traceId, keyKind }: RecordHeader): PreparedUser {
  const origin = { receivedAt, traceId, userIndex: unpacker.number() };
  const person = unpacker.text();
  const junk = unpacker.list(unpackType);
  const events = unpacker.list(unpackEvent);
  const statement = unpacker.number() === 0 ? null : unpackStatement(unpacker);
  return new UnpackedUser({ origin, keyKind, person, junk, events, statement }, unpacker.skip());
}

/** Who is known by all keys together is not looked up by each of them; so those stay packed until they are asked for. */
class UnpackedUser implements PreparedUser {
  readonly origin: Origin;
  readonly keyKind: KeyKind;
  readonly person: string;
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
