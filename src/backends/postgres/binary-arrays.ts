/**
 * Encodes columns as PostgreSQL binary arrays, for statements that read them with `unnest`: one round trip for any
 * number of rows. Binary, so that text needs no escaping here and no parsing there; `pg` sends a Buffer in binary
 * format. The statement must cast each parameter to the array type that is built here (`$1::int8[]`), as a
 * `RowsStatement` does, which has the names, types and values of its columns in one place.
 */

import type { Queryable, Result, Statement } from './pool.ts';

const OID = { bool: 16, bytea: 17, int8: 20, int2: 21, int4: 23, text: 25, uuid: 2950 } as const;
/** Dimensions, whether there are nulls, type of the elements, their number, the first one's index: 4 bytes each. */
const HEADER_BYTES = 20;
const LENGTH_BYTES = 4;
const UUID_BYTES = 16;
const NULL = -1;
const TWO_POW_32 = 2 ** 32;

/** `write` returns where the value ends. */
function arrayOf<Value>(
  oid: number,
  values: readonly (Value | null)[],
  bytesOf: (value: Value) => number,
  write: (buffer: Buffer, value: Value, at: number) => number,
): Buffer {
  let bytes = HEADER_BYTES + values.length * LENGTH_BYTES;
  for (const value of values) if (value !== null) bytes += bytesOf(value);
  const buffer = Buffer.allocUnsafe(bytes);
  let at = HEADER_BYTES;
  let hasNull = 0;
  for (const value of values) {
    if (value === null) {
      hasNull = 1;
      at = buffer.writeInt32BE(NULL, at);
      continue;
    }
    const end = write(buffer, value, at + LENGTH_BYTES);
    buffer.writeInt32BE(end - at - LENGTH_BYTES, at);
    at = end;
  }
  buffer.writeInt32BE(values.length === 0 ? 0 : 1, 0);
  buffer.writeInt32BE(hasNull, 4);
  buffer.writeInt32BE(oid, 8);
  // The header of an empty array ends before the dimensions.
  if (values.length === 0) return buffer.subarray(0, 12);
  buffer.writeInt32BE(values.length, 12);
  buffer.writeInt32BE(1, 16);
  return buffer;
}

/** Safe integers. */
export function int8s(values: readonly (number | null)[]): Buffer {
  return arrayOf(
    OID.int8,
    values,
    () => 8,
    (buffer, value, at) => {
      const high = Math.floor(value / TWO_POW_32);
      buffer.writeInt32BE(high, at);
      return buffer.writeUInt32BE(value - high * TWO_POW_32, at + 4);
    },
  );
}

export function int4s(values: readonly (number | null)[]): Buffer {
  const write = (buffer: Buffer, value: number, at: number): number => buffer.writeInt32BE(value, at);
  return arrayOf(OID.int4, values, () => 4, write);
}

export function int2s(values: readonly number[]): Buffer {
  const write = (buffer: Buffer, value: number, at: number): number => buffer.writeInt16BE(value, at);
  return arrayOf(OID.int2, values, () => 2, write);
}

function booleans(values: readonly boolean[]): Buffer {
  const write = (buffer: Buffer, value: boolean, at: number): number => buffer.writeUInt8(value ? 1 : 0, at);
  return arrayOf(OID.bool, values, () => 1, write);
}

/** UUIDs in text form, with dashes. The last one is cached: all users of a request share its trace_id. */
export function uuids(values: readonly (string | null)[]): Buffer {
  let last: string | null = null;
  let bytes = Buffer.alloc(UUID_BYTES);
  const write = (buffer: Buffer, value: string, at: number): number => {
    if (value !== last) {
      bytes = Buffer.from(value.replaceAll('-', ''), 'hex');
      if (bytes.length !== UUID_BYTES) throw new TypeError('an id that is not a UUID');
      last = value;
    }
    return at + bytes.copy(buffer, at);
  };
  return arrayOf(OID.uuid, values, () => UUID_BYTES, write);
}

/** None may hold U+0000: see `views/storable-text.ts`. */
export function texts(values: readonly (string | null)[]): Buffer {
  const write = (buffer: Buffer, value: string, at: number): number => at + buffer.write(value, at);
  return arrayOf(OID.text, values, (value) => Buffer.byteLength(value), write);
}

export function byteas(values: readonly (Uint8Array | null)[]): Buffer {
  const write = (buffer: Buffer, value: Uint8Array, at: number): number => {
    buffer.set(value, at);
    return at + value.length;
  };
  return arrayOf(OID.bytea, values, ({ length }) => length, write);
}

interface Column<Row> {
  /** Of its array's elements. */
  readonly type: string;
  readonly arrayOf: (rows: readonly Row[]) => unknown;
}

/** By name. */
export type Columns<Row> = Readonly<Record<string, Column<Row>>>;

function columnOf<Value>(type: string, arrayOf: (values: readonly Value[]) => unknown) {
  return <Row>(valueOf: (row: Row) => Value): Column<Row> => ({ type, arrayOf: (rows) => arrayOf(rows.map(valueOf)) });
}

export const int8 = columnOf('int8', int8s);
export const int4 = columnOf('int4', int4s);
export const int2 = columnOf('int2', int2s);
export const bool = columnOf('bool', booleans);
export const uuid = columnOf('uuid', uuids);
export const text = columnOf('text', texts);
export const bytea = columnOf('bytea', byteas);
/** Numbers as text. */
export const numeric = columnOf('numeric', (values: readonly string[]) => values);

/** A statement about rows, which it reads as `q`, with their `ordinal` from 1. */
export class RowsStatement<Row> {
  readonly #columns: readonly Column<Row>[];
  readonly #statement: Statement;

  constructor(name: string, columns: Columns<Row>, sqlOf: (rows: string, names: string) => string) {
    this.#columns = Object.values(columns);
    const names = Object.keys(columns).join(', ');
    const arrays = this.#columns.map(({ type }, index) => `$${index + 1}::${type}[]`).join(', ');
    const rows = `unnest(${arrays}) WITH ORDINALITY AS q (${names}, ordinal)`;
    this.#statement = { name: `store_${name}`, text: sqlOf(rows, names) };
  }

  /** Sends nothing without rows. */
  async query<Found>(client: Queryable, rows: readonly Row[]): Promise<Omit<Result<Found>, 'command'>> {
    if (rows.length === 0) return { rows: [], rowCount: 0 };
    return client.query<Found>(
      this.#statement,
      this.#columns.map(({ arrayOf }) => arrayOf(rows)),
    );
  }
}

/** `end` follows; ORDER BY ordinal, where the table counts its rows. */
export function insertInto<Row>(table: string, columns: Columns<Row>, end = ''): RowsStatement<Row> {
  return new RowsStatement(
    `insert_${table}`,
    columns,
    (rows, names) => `INSERT INTO ${table} (${names}) SELECT ${names} FROM ${rows} ${end}`,
  );
}
