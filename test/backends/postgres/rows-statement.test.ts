/** Rows as arrays: whatever their values are, the server reads them as they were, and nothing else. */

import assert from 'node:assert/strict';
import { suite, test, type TestContext } from 'node:test';
import * as fc from 'fast-check';
import type { PostgresPool } from '../../../src/backends/postgres/pool.ts';
import {
  bool,
  bytea,
  type Columns,
  int2,
  int4,
  int8,
  numeric,
  RowsStatement,
  text,
  uuid,
} from '../../../src/backends/postgres/rows-statement.ts';
import { StoreValueError } from '../../../src/store-writer.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { emptyDatabase } from './database.ts';

interface Row {
  readonly long: number | null;
  readonly whole: number | null;
  readonly short: number;
  readonly flag: boolean;
  readonly id: string | null;
  readonly words: string | null;
  readonly bytes: Uint8Array | null;
  readonly amount: string;
}

const COLUMNS: Columns<Row> = {
  long: int8(({ long }) => long),
  whole: int4(({ whole }) => whole),
  short: int2(({ short }) => short),
  flag: bool(({ flag }) => flag),
  id: uuid(({ id }) => id),
  words: text(({ words }) => words),
  bytes: bytea(({ bytes }) => bytes),
  amount: numeric(({ amount }) => amount),
};

const READ = new RowsStatement<Row>(
  'test_read',
  COLUMNS,
  (rows) => `
    SELECT long, whole, short, flag, id, words, bytes, amount::text AS amount, ordinal FROM ${rows} ORDER BY ordinal`,
);

/** All that arrays, JSON, escapes and COPY give a meaning to, in pieces that are put together. */
const PIECES = [
  ...['"', '\\', '{', '}', ',', '\\"', '\\\\', '\\x00', '\\N', '\\.', "'", '$1', 'NULL', 'null', '{}', '""', ' '],
  ...['\t', '\n', '\r', '\v', '\u0001', '\u007f', '\u0085', '\u00a0', '\u2028', '\ufeff', '\ufffd', '\uffff'],
  ...['a', 'ü', 'e\u0301', '😀', '{"a":"\\u0000"}', 'x'.repeat(10_000)],
];

const ROW: Row = { long: 0, whole: 0, short: 0, flag: true, id: null, words: null, bytes: null, amount: '0' };

function rowWith(values: Partial<Row>): Row {
  return { ...ROW, ...values };
}

async function connect(context: TestContext): Promise<PostgresPool> {
  const pool = await (await emptyDatabase()).connect({ max: 1 });
  context.after(() => pool.close());
  return pool;
}

/** What the server has read, without the Buffers that `pg` makes. */
async function readBack(pool: PostgresPool, rows: readonly Row[]): Promise<unknown[]> {
  const found = await READ.query<Row & { readonly ordinal: number }>(pool, rows);
  return found.rows.map(({ ordinal, bytes, ...row }, index) => {
    assert.equal(ordinal, index + 1);
    return Object.assign(row, { bytes: bytes && new Uint8Array(bytes) });
  });
}

const words = fc
  .array(fc.oneof(fc.constantFrom(...PIECES), fc.string({ unit: 'binary' })), { maxLength: 6 })
  .map((pieces) => pieces.join('').replaceAll('\0', ''));
const rowsToSend: fc.Arbitrary<readonly Row[]> = fc.array(
  fc.record(
    {
      long: fc.option(fc.maxSafeInteger()),
      whole: fc.option(fc.integer()),
      short: fc.integer({ min: -(2 ** 15), max: 2 ** 15 - 1 }),
      flag: fc.boolean(),
      id: fc.option(fc.uuid()),
      words: fc.option(words),
      bytes: fc.option(fc.uint8Array()),
      amount: fc.constantFrom('0', '-0.000001', '12345678901234567890.123456789', '1000000000000000000000'),
    },
    { noNullPrototype: true },
  ),
  { minLength: 1 },
);

suite('Rows as arrays', { skip: whyNoPostgres() }, () => {
  test('any rows come back as they were, and in their order', async (context) => {
    const pool = await connect(context);
    await fc.assert(
      fc.asyncProperty(rowsToSend, async (rows) => assert.deepEqual(await readBack(pool, rows), rows)),
      { numRuns: 200 },
    );
  });

  test('every text of one or two pieces comes back as it was', async (context) => {
    const pool = await connect(context);
    const texts = ['', ...PIECES, ...PIECES.flatMap((one) => PIECES.map((other) => one + other))];
    const rows = texts.map((words) => rowWith({ words }));
    assert.deepEqual(await readBack(pool, rows), rows);
  });

  test('bytes that are a part of others come back without them', async (context) => {
    const pool = await connect(context);
    const all = Uint8Array.from({ length: 256 }, (_, index) => index);
    const parts = [all, all.subarray(92, 93), all.subarray(3, 3), Buffer.from(all).subarray(34, 93)];
    const rows = parts.map((bytes) => rowWith({ bytes: new Uint8Array(bytes) }));
    const sent = parts.map((bytes) => rowWith({ bytes }));
    assert.deepEqual(await readBack(pool, sent), rows);
  });

  test('half a surrogate pair is stored as U+FFFD, and what follows stays what it is', async (context) => {
    const pool = await connect(context);
    const halves = ['\ud83d', 'a\ude00"', '\ud83d\\', '\ude00\ud83d'];
    const rows = halves.map((words) => rowWith({ words }));
    const expected = halves.map((words) => rowWith({ words: words.toWellFormed() }));
    assert.deepEqual(await readBack(pool, rows), expected);
  });

  test('integers beyond those that a number holds exactly are the nearest that it does', async (context) => {
    const pool = await connect(context);
    const rows = [2 ** 53 + 2, -(2 ** 62), 2 ** 60].map((long) => rowWith({ long }));
    assert.deepEqual(await readBack(pool, rows), rows);
  });

  test('no rows are not sent', async () => {
    const nowhere = { query: () => Promise.reject(new Error('a statement was sent')) };
    assert.deepEqual(await READ.query(nowhere, []), { rows: [], rowCount: 0 });
  });

  const refused: Readonly<Record<string, Partial<Row>>> = {
    'a fraction': { long: 1.5 },
    'no number': { long: Number.NaN },
    'an endless number': { whole: Number.POSITIVE_INFINITY },
    'too large a number': { long: 1e21 },
    'a number that is too large for its column': { short: 32_768 },
    'no UUID': { id: '0193-no-uuid' },
    'no amount': { amount: '1,5' },
    'a text with U+0000': { words: 'a\0b' },
  };
  for (const [what, values] of Object.entries(refused)) {
    test(`${what} is refused, and not read as something else`, async (context) => {
      const pool = await connect(context);
      await assert.rejects(READ.query(pool, [ROW, rowWith(values)]), StoreValueError);
      assert.deepEqual(await readBack(pool, [ROW]), [ROW]);
    });
  }
});
