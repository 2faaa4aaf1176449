/**
 * Encodes columns as PostgreSQL binary arrays, for statements that read them with `unnest`: one round trip for any
 * number of rows. Binary, so that text needs no escaping here and no parsing there; `pg` sends a Buffer in binary
 * format. The statement must cast each parameter to the array type that is built here (`$1::int8[]`).
 */

const OID = { bool: 16, bytea: 17, int8: 20, int2: 21, int4: 23, text: 25, float8: 701, uuid: 2950 } as const;
/** Dimensions, whether there are nulls, type of the elements, their number, the first one's index: 4 bytes each. */
const HEADER_BYTES = 20;
const LENGTH_BYTES = 4;
const UUID_BYTES = 16;
const NULL = -1;
const TWO_POW_32 = 2 ** 32;

function fixed(
  oid: number,
  bytes: number,
  values: readonly unknown[],
  write: (buffer: Buffer, index: number, at: number) => void,
): Buffer {
  const buffer = Buffer.allocUnsafe(HEADER_BYTES + values.length * (LENGTH_BYTES + bytes));
  let at = HEADER_BYTES;
  let hasNull = 0;
  for (let index = 0; index < values.length; index++) {
    if (values[index] === null) {
      hasNull = 1;
      at = buffer.writeInt32BE(NULL, at);
      continue;
    }
    at = buffer.writeInt32BE(bytes, at);
    write(buffer, index, at);
    at += bytes;
  }
  return finish(buffer, at, oid, values.length, hasNull);
}

function finish(buffer: Buffer, end: number, oid: number, count: number, hasNull: number): Buffer {
  buffer.writeInt32BE(count === 0 ? 0 : 1, 0);
  buffer.writeInt32BE(hasNull, 4);
  buffer.writeInt32BE(oid, 8);
  buffer.writeInt32BE(count, 12);
  buffer.writeInt32BE(1, 16);
  // The header of an empty array ends before the dimensions.
  return buffer.subarray(0, count === 0 ? 12 : end);
}

/** Safe integers. */
export function int8s(values: readonly (number | null)[]): Buffer {
  return fixed(OID.int8, 8, values, (buffer, index, at) => {
    const value = values[index] as number;
    const high = Math.floor(value / TWO_POW_32);
    buffer.writeInt32BE(high, at);
    buffer.writeUInt32BE(value - high * TWO_POW_32, at + 4);
  });
}

export function int4s(values: readonly (number | null)[]): Buffer {
  return fixed(OID.int4, 4, values, (buffer, index, at) => buffer.writeInt32BE(values[index] as number, at));
}

export function int2s(values: readonly number[]): Buffer {
  return fixed(OID.int2, 2, values, (buffer, index, at) => buffer.writeInt16BE(values[index] as number, at));
}

export function float8s(values: readonly number[]): Buffer {
  return fixed(OID.float8, 8, values, (buffer, index, at) => buffer.writeDoubleBE(values[index] as number, at));
}

export function booleans(values: readonly boolean[]): Buffer {
  return fixed(OID.bool, 1, values, (buffer, index, at) => buffer.writeUInt8(values[index] === true ? 1 : 0, at));
}

/** UUIDs in text form, with dashes. The last one is cached: all users of a request share its trace_id. */
export function uuids(values: readonly (string | null)[]): Buffer {
  let last: string | null = null;
  let bytes = Buffer.alloc(UUID_BYTES);
  return fixed(OID.uuid, UUID_BYTES, values, (buffer, index, at) => {
    const value = values[index] as string;
    if (value !== last) {
      bytes = Buffer.from(value.replaceAll('-', ''), 'hex');
      if (bytes.length !== UUID_BYTES) throw new TypeError('an id that is not a UUID');
      last = value;
    }
    bytes.copy(buffer, at);
  });
}

/** None may hold U+0000: see `views/storable-text.ts`. */
export function texts(values: readonly (string | null)[]): Buffer {
  let bytes = HEADER_BYTES + values.length * LENGTH_BYTES;
  for (const value of values) if (value !== null) bytes += Buffer.byteLength(value);
  const buffer = Buffer.allocUnsafe(bytes);
  let at = HEADER_BYTES;
  let hasNull = 0;
  for (const value of values) {
    if (value === null) {
      hasNull = 1;
      at = buffer.writeInt32BE(NULL, at);
      continue;
    }
    const written = buffer.write(value, at + LENGTH_BYTES);
    buffer.writeInt32BE(written, at);
    at += LENGTH_BYTES + written;
  }
  return finish(buffer, at, OID.text, values.length, hasNull);
}

export function byteas(values: readonly (Uint8Array | null)[]): Buffer {
  let bytes = HEADER_BYTES + values.length * LENGTH_BYTES;
  for (const value of values) if (value !== null) bytes += value.length;
  const buffer = Buffer.allocUnsafe(bytes);
  let at = HEADER_BYTES;
  let hasNull = 0;
  for (const value of values) {
    if (value === null) {
      hasNull = 1;
      at = buffer.writeInt32BE(NULL, at);
      continue;
    }
    at = buffer.writeInt32BE(value.length, at);
    buffer.set(value, at);
    at += value.length;
  }
  return finish(buffer, at, OID.bytea, values.length, hasNull);
}
