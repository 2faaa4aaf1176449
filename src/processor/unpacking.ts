/**
 * Unpacks prepared records, in the order that `packing.ts` defines.
 *
 * The texts are slices, and a slice keeps the whole string in memory: code that keeps one for long copies it first.
 */

import {
  type ForeignFormat,
  FORMATS,
  IDENTIFIER_TYPES,
  type IdentifierType,
  KEY_KINDS,
  type KeyKind,
  type MatchKey,
  type Origin,
} from '../model.ts';
import type { RecordHeader, RejectionToStore, PropertyUpdateToStore } from '../store-writer.ts';
import { releaseMemory } from '../runtime/threads.ts';
import { FIRST_OTHER, FIRST_WIDE, FIRST_WORD, NO_TEXT, type Packed } from './packer.ts';
import { AMOUNT, AMOUNT_KINDS, type Amount, NO_JUNK } from './packing.ts';
import type { PreparedEvent, PreparedRecord, PreparedUser } from './prepared.ts';

/** Most lists are empty. */
const NONE: readonly never[] = [];

export function unpack(packed: Packed): readonly PreparedRecord[] {
  const unpacker = new Unpacker(packed);
  const records: PreparedRecord[] = [];
  while (!unpacker.isEnd) records.push(unpackRecord(unpacker));
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
  let left = unpacker.number();
  if (left === 0) return NONE;
  const items: T[] = [];
  for (; left > 0; left--) items.push(unpackItem(unpacker));
  return items;
}

function unpackHeader(unpacker: Unpacker): RecordHeader {
  const header = {
    position: unpacker.number(),
    receivedAt: unpacker.number(),
    partition: unpacker.number(),
    keyKind: KEY_KINDS[unpacker.number()] as KeyKind,
    firstUserIndex: unpacker.number(),
    usersAccepted: unpacker.number(),
    usersRejected: unpacker.number(),
    eventsAccepted: unpacker.number(),
    tenantId: unpacker.word(),
    keyId: unpacker.word(),
    traceId: unpacker.text(),
    idempotencyKey: unpacker.optionalText(),
    bodyHash: unpacker.optionalText(),
  };
  const format = unpacker.number();
  const droppedByClient = unpacker.number();
  if (format === 0 && droppedByClient === 0) return header;
  return {
    ...header,
    ...(format !== 0 && { format: FORMATS[format] as ForeignFormat }),
    ...(droppedByClient !== 0 && { droppedByClient }),
  };
}

function unpackRejection(unpacker: Unpacker): RejectionToStore {
  return { userIndex: unpacker.number(), message: unpacker.text(), payload: unpacker.text() };
}

function unpackUser(unpacker: Unpacker, { receivedAt, traceId, keyKind }: RecordHeader): PreparedUser {
  const origin: Origin = { receivedAt, traceId, userIndex: unpacker.number() };
  const propertyUpdate = unpackPropertyUpdate(unpacker);
  const junk = unpackJunk(unpacker.number());
  const count = unpacker.number();
  const events: PreparedEvent[] = [];
  for (let index = 0; index < count; index++) events.push(unpackEvent(unpacker, index));
  const keys = listOf(unpacker, unpackKey);
  return { origin, keyKind, junk, events, propertyUpdate, keys };
}

function unpackPropertyUpdate(unpacker: Unpacker): PropertyUpdateToStore | null {
  const shape = unpacker.optionalWord();
  const [fields, properties] = [unpacker.optionalText(), unpacker.optionalText()];
  const isCut = unpacker.number() === 1;
  return shape === null ? null : { shape, fields: fields ?? '', properties: properties ?? '', isCut };
}

function unpackJunk(bits: number): readonly IdentifierType[] {
  return bits === NO_JUNK ? NONE : IDENTIFIER_TYPES.filter((_type, index) => (bits & (1 << index)) !== 0);
}

function unpackEvent(unpacker: Unpacker, eventIndex: number): PreparedEvent {
  const name = unpacker.word();
  const properties = unpacker.text();
  const eventId = unpacker.optionalText();
  const kinds = unpacker.number();
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
  const type = IDENTIFIER_TYPES[unpacker.number()] as IdentifierType;
  const value = unpacker.text();
  return { type, value, raw: unpacker.optionalText() ?? value };
}

/** Reads values one after another. Takes ownership of the memory of the texts: makes strings of it, and releases it. */
class Unpacker {
  readonly #narrow: string;
  readonly #wide: string;
  readonly #other: string;
  readonly #words: readonly string[];
  readonly #numbers: Float64Array;
  #next = 0;

  constructor({ narrow, wide, text, words, numbers }: Packed) {
    this.#narrow = Buffer.from(narrow.buffer).toString('latin1');
    this.#wide = Buffer.from(wide.buffer).toString('utf8');
    releaseMemory(narrow.buffer);
    releaseMemory(wide.buffer);
    this.#other = text;
    this.#words = words;
    this.#numbers = numbers;
  }

  get isEnd(): boolean {
    return this.#next === this.#numbers.length;
  }

  number(): number {
    return this.#numbers[this.#next++] as number;
  }

  optionalText(): string | null {
    const start = this.number();
    const end = this.number();
    if (start < 0) return this.#word(start);
    if (start < FIRST_WIDE) return this.#narrow.substring(start, end);
    if (start < FIRST_OTHER) return this.#wide.substring(start - FIRST_WIDE, end - FIRST_WIDE);
    return this.#other.substring(start - FIRST_OTHER, end - FIRST_OTHER);
  }

  text(): string {
    return this.optionalText() ?? '';
  }

  optionalWord(): string | null {
    return this.#word(this.number());
  }

  word(): string {
    return this.optionalWord() ?? '';
  }

  #word(word: number): string | null {
    return word === NO_TEXT ? null : (this.#words[FIRST_WORD - word] as string);
  }
}
