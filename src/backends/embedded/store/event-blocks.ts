/**
 * Events as they are stored: some dozens together in a row, because a row costs more than its content. Pure.
 *
 * A block has events of one tenant in the order of their numbers: `numbers` has all numeric values, in columns
 * (columnar/column-block.ts); `texts` is all names, amounts and properties, concatenated, in UTF-8. Amounts are texts,
 * since not all are integers. Lengths are those of the texts in JavaScript. Properties begin with a brace, so that half
 * a surrogate pair at the end of a name never meets its other half.
 */

import { crc32 } from 'node:zlib';
import { ColumnBlock, encodeBlock, type Rows } from '../../../columnar/column-block.ts';
import { decodeUtf8 } from '../../../json/utf8.ts';
import type { NodeNumber } from '../../../model.ts';
import { amountText } from '../../../views/currency.ts';
import { damaged } from '../database.ts';

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
  /** Of both; SQLite has no checksums. */
  readonly crc: number;
}

/** The kind of an amount, two of them in one number. */
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
const COLUMNS = 11;

export const BLOCK_EVENTS_MAX = 64;
/** Approximate size of the numbers of a block, and of those of an event in it. */
const BLOCK_BYTES = 110;
const EVENT_BYTES = 12;

const IN_ORDER = Uint32Array.from({ length: BLOCK_EVENTS_MAX }, (_, at) => at);

export class BlockWriter {
  readonly #columns = Array.from({ length: COLUMNS }, () => new Float64Array(BLOCK_EVENTS_MAX));
  #texts = '';
  #events = 0;

  get events(): number {
    return this.#events;
  }

  /** Approximate size of the block with another event. */
  bytesWith({ name, properties }: Pick<BlockEvent, 'name' | 'properties'>): number {
    return BLOCK_BYTES + (this.#events + 1) * EVENT_BYTES + this.#texts.length + name.length + properties.length;
  }

  /** Call it at most `BLOCK_EVENTS_MAX` times per block. */
  add(
    no: number,
    node: NodeNumber | null,
    record: number,
    userIndex: number,
    {
      timestamp,
      eventIndex,
      name,
      revenue,
      value,
      properties,
    }: Omit<BlockEvent, 'no' | 'tenant' | 'node' | 'record' | 'userIndex'>,
  ): void {
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
    this.#text(PROPERTIES_LENGTH, properties);
    this.#events++;
  }

  /** The numbers are overwritten by the next block. */
  take(): Block {
    const rows: Rows = { columns: this.#columns, bytes: null, count: this.#events };
    const [numbers, texts] = [encodeBlock(rows, IN_ORDER, 0, this.#events), Buffer.from(this.#texts)];
    this.clear();
    return { numbers, texts, crc: crcOf(numbers, texts) };
  }

  clear(): void {
    this.#texts = '';
    this.#events = 0;
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

function crcOf(numbers: Uint8Array, texts: Uint8Array): number {
  return crc32(texts, crc32(numbers));
}

export function unpackBlock(tenant: number, { numbers, texts, crc }: Block): BlockEvent[] {
  if (crcOf(numbers, texts) !== crc) throw damaged('a block of events is not what was written');
  const block = new ColumnBlock(numbers, COLUMNS, false);
  const text = decodeUtf8(texts);
  const events: BlockEvent[] = [];
  let at = 0;
  for (let row = 0; row < block.count; row++) {
    const take = (lengths: number): string => text.slice(at, (at += block.value(lengths, row)));
    const node = block.value(NODE, row);
    const kinds = block.value(KINDS, row);
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
      properties: take(PROPERTIES_LENGTH),
    });
  }
  return events;
}
