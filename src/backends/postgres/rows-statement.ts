/**
 * Statements that read any number of rows with `unnest`, in one round trip: each column is an array, one parameter. `pg`
 * writes arrays as PostgreSQL's text, so a statement casts each parameter to the type of its column (`$1::int8[]`). A
 * `RowsStatement` does, which has the names, types and values of its columns in one place. No text may hold U+0000: see
 * `views/storable-text.ts`.
 */

import type { Queryable, Result, Statement } from './pool.ts';

interface Column<Row> {
  /** Of its array's elements. */
  readonly type: string;
  readonly arrayOf: (rows: readonly Row[]) => unknown;
}

/** By name. */
export type Columns<Row> = Readonly<Record<string, Column<Row>>>;

function columnOf<Value>(type: string, arrayOf: (values: readonly Value[]) => unknown = (values) => values) {
  return <Row>(valueOf: (row: Row) => Value): Column<Row> => ({ type, arrayOf: (rows) => arrayOf(rows.map(valueOf)) });
}

/** As `pg` writes it, but without quotes around each value: none of these needs them (decisions/035). */
function unquoted(values: readonly (number | boolean | null)[]): string {
  return `{${values.map((value) => value ?? 'NULL').join(',')}}`;
}

/** Safe integers. */
export const int8 = columnOf('int8', unquoted);
export const int4 = columnOf('int4', unquoted);
export const int2 = columnOf('int2', unquoted);
export const bool = columnOf('bool', unquoted);
export const uuid = columnOf<string | null>('uuid');
export const text = columnOf<string | null>('text');
export const bytea = columnOf<Uint8Array | null>('bytea');
/** Numbers as text. */
export const numeric = columnOf<string>('numeric');

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
