/**
 * Events as they are stored: up to 128 together in a row, because a row costs more than its content. Pure.
 *
 * A block has events of one tenant in the order of their numbers: `numbers` has all numeric values, in columns
 * (columnar/column-block.ts); `texts` is all event ids that are UUIDs, as 16 bytes each, and then all names, amounts
 * and properties, concatenated, in UTF-8. Amounts are texts, since not all are integers. Lengths count characters as
 * JavaScript does. A name may end with half a surrogate pair: properties begin with a brace, so it never meets another
 * half.
 */

import { crc32 } from 'node:zlib';
import { ColumnBlock, encodeBlock, type Rows } from '../../../columnar/column-block.ts';
import { decodeUtf8 } from '../../../json/utf8.ts';
import type { NodeNumber } from '../../../model.ts';
import { amountText } from '../../../views/currency.ts';
import { damaged } from '../database.ts';
import { UUID_BYTES, uuidBytes, uuidText } from '../uuids.ts';

export interface BlockEvent {
  readonly no: number;
  readonly tenant: number;
  readonly node: NodeNumber | null;
  readonly timestamp: number;
  readonly record: number;
  readonly userIndex: number;
  readonly eventIndex: number;
  readonly name: string;
  /** A text if a double would lose digits. */
  readonly revenue: number | string | null;
  readonly value: number | string | null;
  /** A JSON object. */
  readonly properties: string;
}

export interface Block {
  readonly numbers: Uint8Array;
  readonly texts: Uint8Array;
  /** Checksum of both; SQLite has none. */
  readonly crc: number;
}

/** The kind of an amount; one number has the kinds of both. */
const AMOUNT = { none: 0, number: 1, text: 2 } as const;
const AMOUNT_KINDS = 3;

const NO_NODE = 0;

/** The columns of `numbers`. */
const NO = 0;
const NODE = 1;
const TIMESTAMP = 2;
const RECORD = 3;
const USER_INDEX = 4;
const EVENT_INDEX = 5;
const NAME_LENGTH = 6;
const KINDS = 7;
const REVENUE_LENGTH = 8;
const VALUE_LENGTH = 9;
const PROPERTIES_LENGTH = 10;
/** Where in the properties their `EVENT_ID` was cut out; 0, the place of their brace, if they have none. */
const EVENT_ID_AT = 11;
const COLUMNS = 12;

/** As the SDKs send it: nearly every event has one, so it is worth storing as bytes. */
const EVENT_ID = /"\$event_id":"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"/;

export const BLOCK_EVENTS_MAX = 128;
/** A block fills a page of the store; a larger event has a block of its own. */
const BLOCK_BYTES_MAX = 8_115;
/** Approximate size of `numbers`: of an empty block, and for each event. */
const NUMBERS_BYTES = 119;
const EVENT_BYTES = 11;

const IN_ORDER = Uint32Array.from({ length: BLOCK_EVENTS_MAX }, (_, at) => at);

export class BlockWriter {
  readonly #columns = Array.from({ length: COLUMNS }, () => new Float64Array(BLOCK_EVENTS_MAX));
  readonly #eventIds = new Uint8Array(BLOCK_EVENTS_MAX * UUID_BYTES);
  #eventIdCount = 0;
  #texts = '';
  #events = 0;

  get events(): number {
    return this.#events;
  }

  /** False if the block is full. */
  add(
    no: number,
    node: NodeNumber | null,
    record: number,
    userIndex: number,
    event: Omit<BlockEvent, 'no' | 'tenant' | 'node' | 'record' | 'userIndex'>,
  ): boolean {
    const { timestamp, eventIndex, name, revenue, value, properties } = event;
    const eventId = EVENT_ID.exec(properties);
    const rest = eventId === null ? properties : cutOut(properties, eventId.index, eventId[0].length);
    if (!this.#hasRoomFor(name.length + rest.length)) return false;
    this.#set(NO, no);
    this.#set(NODE, node ?? NO_NODE);
    this.#set(TIMESTAMP, timestamp);
    this.#set(RECORD, record);
    this.#set(USER_INDEX, userIndex);
    this.#set(EVENT_INDEX, eventIndex);
    this.#set(KINDS, kindOf(revenue) * AMOUNT_KINDS + kindOf(value));
    this.#text(NAME_LENGTH, name);
    this.#text(REVENUE_LENGTH, amountText(revenue) ?? '');
    this.#text(VALUE_LENGTH, amountText(value) ?? '');
    this.#text(PROPERTIES_LENGTH, rest);
    this.#set(EVENT_ID_AT, eventId?.index ?? 0);
    if (eventId !== null) this.#eventIds.set(uuidBytes(eventId[1] as string), UUID_BYTES * this.#eventIdCount++);
    this.#events++;
    return true;
  }

  /** `numbers` is valid only until the next block is encoded. */
  take(): Block {
    const rows: Rows = { columns: this.#columns, bytes: null, count: this.#events };
    const numbers = encodeBlock(rows, IN_ORDER, 0, this.#events);
    const idBytes = UUID_BYTES * this.#eventIdCount;
    const texts = Buffer.allocUnsafe(idBytes + Buffer.byteLength(this.#texts));
    texts.set(this.#eventIds.subarray(0, idBytes));
    texts.write(this.#texts, idBytes);
    this.clear();
    return { numbers, texts, crc: crcOf(numbers, texts) };
  }

  clear(): void {
    this.#texts = '';
    this.#eventIdCount = 0;
    this.#events = 0;
  }

  #hasRoomFor(textLength: number): boolean {
    const events = this.#events + 1;
    const ids = UUID_BYTES * (this.#eventIdCount + 1);
    const bytes = NUMBERS_BYTES + events * EVENT_BYTES + ids + this.#texts.length + textLength;
    return this.#events === 0 || (events <= BLOCK_EVENTS_MAX && bytes <= BLOCK_BYTES_MAX);
  }

  #set(column: number, value: number): void {
    (this.#columns[column] as Float64Array)[this.#events] = value;
  }

  #text(lengths: number, text: string): void {
    this.#set(lengths, text.length);
    this.#texts += text;
  }
}

function kindOf(amount: number | string | null): number {
  if (amount === null) return AMOUNT.none;
  return typeof amount === 'number' ? AMOUNT.number : AMOUNT.text;
}

function amountOf(kind: number, text: string): number | string | null {
  if (kind === AMOUNT.none) return null;
  return kind === AMOUNT.number ? Number(text) : text;
}

function cutOut(text: string, start: number, length: number): string {
  return text.slice(0, start) + text.slice(start + length);
}

function withEventId(properties: string, at: number, id: string): string {
  return at === 0 ? properties : `${properties.slice(0, at)}"$event_id":"${id}"${properties.slice(at)}`;
}

function crcOf(numbers: Uint8Array, texts: Uint8Array): number {
  return crc32(texts, crc32(numbers));
}

export function unpackBlock(tenant: number, { numbers, texts, crc }: Block): BlockEvent[] {
  if (crcOf(numbers, texts) !== crc) throw damaged('a block of events is not what was written');
  const block = new ColumnBlock(numbers, COLUMNS, false);
  let ids = 0;
  for (let row = 0; row < block.count; row++) if (block.value(EVENT_ID_AT, row) > 0) ids += UUID_BYTES;
  const text = decodeUtf8(texts.subarray(ids));
  const events: BlockEvent[] = [];
  let at = 0;
  let idAt = 0;
  for (let row = 0; row < block.count; row++) {
    const take = (lengths: number): string => text.slice(at, (at += block.value(lengths, row)));
    const node = block.value(NODE, row);
    const kinds = block.value(KINDS, row);
    const eventIdAt = block.value(EVENT_ID_AT, row);
    const eventId = eventIdAt === 0 ? '' : uuidText(texts.subarray(idAt, (idAt += UUID_BYTES)));
    events.push({
      no: block.value(NO, row),
      tenant,
      node: node === NO_NODE ? null : node,
      timestamp: block.value(TIMESTAMP, row),
      record: block.value(RECORD, row),
      userIndex: block.value(USER_INDEX, row),
      eventIndex: block.value(EVENT_INDEX, row),
      name: take(NAME_LENGTH),
      revenue: amountOf(Math.floor(kinds / AMOUNT_KINDS), take(REVENUE_LENGTH)),
      value: amountOf(kinds % AMOUNT_KINDS, take(VALUE_LENGTH)),
      properties: withEventId(take(PROPERTIES_LENGTH), eventIdAt, eventId),
    });
  }
  return events;
}
