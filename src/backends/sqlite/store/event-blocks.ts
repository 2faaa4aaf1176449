/**
 * Events as they are stored: some dozens in a row together, because a row costs more than what is in it. Pure.
 *
 * A block holds events of one tenant in the order of their numbers: `numbers` has all that is a number, each as what it
 * differs by from the event before, in varints; `texts` is all names, amounts that are texts, and properties, one
 * after the other, in UTF-8. Lengths are those of the texts in JavaScript. Properties begin with a brace, so that half
 * a character at the end of a name never meets its other half.
 */

import type { NodeNumber } from '../../../model.ts';
import { VarintReader, VarintWriter } from '../varints.ts';

export interface BlockEvent {
  readonly no: number;
  readonly tenant: number;
  readonly node: NodeNumber | null;
  readonly timestamp: number;
  readonly record: number;
  readonly userIndex: number;
  readonly eventIndex: number;
  readonly name: string;
  /** A text where a double would lose digits. */
  readonly revenue: number | string | null;
  readonly value: number | string | null;
  /** A JSON object. */
  readonly properties: string;
}

export interface Block {
  readonly numbers: Uint8Array;
  readonly texts: Uint8Array;
}

/** How an amount is stored; two of them in one number. */
const AMOUNT = { none: 0, number: 1, text: 2 } as const;
const AMOUNT_KINDS = 3;

const NO_NODE = 0;

/** What the next event is told as the difference from. */
interface Before {
  no: number;
  timestamp: number;
  record: number;
}

export class BlockWriter {
  readonly #writer = new VarintWriter();
  readonly #before: Before = { no: 0, timestamp: 0, record: 0 };
  #texts = '';
  #events = 0;

  get events(): number {
    return this.#events;
  }

  /** Of its texts, in characters. */
  get length(): number {
    return this.#texts.length;
  }

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
    const writer = this.#writer;
    const before = this.#before;
    writer.put(no - before.no);
    writer.put(node ?? NO_NODE);
    writer.putSigned(timestamp - before.timestamp);
    writer.put(record - before.record);
    writer.put(userIndex);
    writer.put(eventIndex);
    writer.put(name.length);
    writer.put(properties.length);
    before.no = no;
    before.timestamp = timestamp;
    before.record = record;
    writer.put(kindOf(revenue) * AMOUNT_KINDS + kindOf(value));
    this.#texts += name;
    if (revenue !== null) this.#amount(revenue);
    if (value !== null) this.#amount(value);
    this.#texts += properties;
    this.#events++;
  }

  /** The bytes are overwritten by what is added next. */
  take(): Block {
    const block = { numbers: this.#writer.take(), texts: Buffer.from(this.#texts) };
    this.clear();
    return block;
  }

  clear(): void {
    this.#writer.take();
    this.#texts = '';
    this.#events = 0;
    Object.assign(this.#before, { no: 0, timestamp: 0, record: 0 });
  }

  #amount(amount: number | string): void {
    if (typeof amount === 'number') this.#writer.putDouble(amount);
    else {
      this.#writer.put(amount.length);
      this.#texts += amount;
    }
  }
}

function kindOf(amount: number | string | null): number {
  if (amount === null) return AMOUNT.none;
  return typeof amount === 'number' ? AMOUNT.number : AMOUNT.text;
}

export function unpackBlock(tenant: number, { numbers, texts }: Block): BlockEvent[] {
  const reader = new VarintReader(numbers);
  const text = Buffer.from(texts.buffer, texts.byteOffset, texts.byteLength).toString();
  const events: BlockEvent[] = [];
  let [no, timestamp, record, at] = [0, 0, 0, 0];
  const take = (length: number): string => text.slice(at, (at += length));
  const takeAmount = (kind: number): number | string | null => {
    if (kind === AMOUNT.none) return null;
    return kind === AMOUNT.number ? reader.getDouble() : take(reader.get());
  };
  while (!reader.isAtEnd) {
    no += reader.get();
    const node = reader.get();
    timestamp += reader.getSigned();
    record += reader.get();
    const userIndex = reader.get();
    const eventIndex = reader.get();
    const nameLength = reader.get();
    const propertiesLength = reader.get();
    const kinds = reader.get();
    const name = take(nameLength);
    const revenue = takeAmount(Math.floor(kinds / AMOUNT_KINDS));
    const value = takeAmount(kinds % AMOUNT_KINDS);
    const properties = take(propertiesLength);
    events.push({
      no,
      tenant,
      node: node === NO_NODE ? null : node,
      timestamp,
      record,
      userIndex,
      eventIndex,
      name,
      revenue,
      value,
      properties,
    });
  }
  return events;
}
