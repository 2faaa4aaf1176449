/**
 * How tables are defined, once for both engines: `TablesOf` a definition is its types for queries, `createTables` its SQL
 * in the types of an engine. A column is not null unless it is `nullable`.
 */

import { type Generated, type RawBuilder, sql } from 'kysely';

/** How an engine writes the types of columns and the ends of tables. */
export interface EngineTypes extends Readonly<Record<ColumnType, string>> {
  /** After the closing parenthesis of a table. */
  readonly tableEnd: string;
  /** For a table that is only accessed by its primary key. */
  readonly keyedTableEnd: string;
  /** For sums, whose rows are updated often: how full pages are at first. */
  readonly sumsTableEnd: (fillPercent: number) => string;
}

/**
 * `number`: the primary key of a table, counted up by the engine. `smallInteger`: numbers below 2^31. `uuid`: as text in
 * queries, in lower case. `uuidBytes`: as 16 bytes in SQLite, where there are many. `decimal`: written as text
 * (views/decimal.ts), and read as text with `decimalText`.
 */
export type ColumnType = 'number' | 'text' | 'integer' | 'smallInteger' | 'decimal' | 'bytes' | 'uuid' | 'uuidBytes';

interface Column<Value> {
  readonly type: ColumnType;
  /** What follows the type. */
  readonly constraints: string;
  /** Only for types. */
  readonly value?: Value;
}

function columnOf<Any>(type: ColumnType): <Value extends Any = Any>(constraint?: string) => Column<Value> {
  return (constraint = '') => ({ type, constraints: `NOT NULL ${constraint}` });
}

export const number: Column<Generated<number>> = { type: 'number', constraints: '' };
export const text = columnOf<string>('text');
export const integer = columnOf<number>('integer');
export const smallInteger = columnOf<number>('smallInteger');
export const decimal = columnOf<string>('decimal');
export const bytes = columnOf<Uint8Array>('bytes');
export const uuid = columnOf<string>('uuid');
export const uuidBytes = columnOf<string | Uint8Array>('uuidBytes');

/** A decimal column in a query: PostgreSQL's own numbers would be read as doubles. */
export function decimalText(column: string): RawBuilder<string> {
  return sql<string>`CAST(${sql.ref(column)} AS text)`;
}

export function nullable<Value>({ type, constraints }: Column<Value>): Column<Value | null> {
  return { type, constraints: constraints.replace('NOT NULL', '') };
}

export function primaryKey<Value>({ type, constraints }: Column<Value>): Column<Value> {
  return { type, constraints: constraints.replace('NOT NULL', 'PRIMARY KEY') };
}

/** `value` is SQL. */
export function withDefault<Value>({ type, constraints }: Column<Value>, value: string): Column<Generated<Value>> {
  return { type, constraints: `${constraints} DEFAULT ${value}` };
}

type Columns = Readonly<Record<string, Column<unknown>>>;

interface TableOptions {
  /** After the columns. */
  readonly constraints?: readonly string[];
  /** By name: what follows ON. */
  readonly indexes?: Readonly<Record<string, string>>;
  readonly end?: (types: EngineTypes) => string;
}

interface Table<Own extends Columns> extends TableOptions {
  readonly columns: Own;
}

export function table<Own extends Columns>(columns: Own, options: TableOptions = {}): Table<Own> {
  return { columns, ...options };
}

/** A table that is only accessed by its primary key. */
export function keyedTable<Own extends Columns>(key: string, columns: Own): Table<Own> {
  return { columns, constraints: [`PRIMARY KEY (${key})`], end: ({ keyedTableEnd }) => keyedTableEnd };
}

/** A table of sums; `indexes` in addition to that of the primary key. */
export function sumsTable<Own extends Columns>(
  fillPercent: number,
  key: string,
  columns: Own,
  indexes: TableOptions['indexes'] = {},
): Table<Own> {
  return { columns, indexes, constraints: [`PRIMARY KEY (${key})`], end: (types) => types.sumsTableEnd(fillPercent) };
}

export type Tables = Readonly<Record<string, Table<Columns>>>;

export type TablesOf<Defined extends Tables> = {
  [Name in keyof Defined]: {
    [Own in keyof Defined[Name]['columns']]: Defined[Name]['columns'][Own] extends Column<infer Value> ? Value : never;
  };
};

export function createTables(tables: Tables, types: EngineTypes): string {
  const statements = Object.entries(tables).map(([name, { columns, constraints = [], indexes = {}, end }]) => {
    const lines = Object.entries(columns).map(([column, own]) =>
      `${column} ${types[own.type]} ${own.constraints}`.trim(),
    );
    const body = lines.concat(constraints).join(',\n');
    const created = Object.entries(indexes).map(([index, on]) => `\nCREATE INDEX ${index} ON ${on};`);
    return `CREATE TABLE ${name} (\n${body}\n) ${end?.(types) ?? types.tableEnd};${created.join('')}`;
  });
  return statements.join('\n');
}
