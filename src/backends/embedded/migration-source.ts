/**
 * The embedded installation as the source of a migration (`migration/parts.ts`): all of `store.db` and `keys.db`,
 * opened for reading only. The caller holds the lock of the data folder, so no server writes meanwhile.
 *
 * A position is a JSON array of the values that a part is ordered by, bytes as `{"hex": …}`. Events are unpacked from
 * their blocks, and a chunk ends between two blocks. The mutable state of nodes, and first uses, are in sorted runs.
 */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { keyFileOf, logFolderOf, storeFileOf } from '../../data-folder/files.ts';
import { OperatorError } from '../../errors.ts';
import type { Chunk, ColumnKind, MigratedValue, MigrationSource, TenantLedger } from '../../migration/parts.ts';
import { amountText, currencyOfStored } from '../../views/currency.ts';
import { ACCOUNT_TABLES } from '../sql/account-tables.ts';
import { readAllHours } from '../sql/ledger.ts';
import { columnsOf, PART_NAMES } from '../sql/migrated-parts.ts';
import { type DatabaseFile, damageText, isDamage, openDatabase } from './database.ts';
import { keysFile } from './keys.ts';
import { localLogName } from './log/name.ts';
import type { Entry, RunsShape } from './sorted-runs/entries.ts';
import { storeIdOf, StoreConnection } from './store/connection.ts';
import { unpackBlock } from './store/event-blocks.ts';
import { EVENT_IDS, IDEMPOTENCY_KEYS, keyUseOf } from './store/first-uses.ts';
import { PROFILE_RUNS, stateOf } from './store/profile-runs.ts';
import { storeFile } from './store/schema.ts';
import { type BlockRow, countStored } from './store/stored-events.ts';
import { uuidBytes, uuidText } from './uuids.ts';

interface ChunkLimits {
  readonly rows: number;
  /** Length of the texts, in characters. */
  readonly length: number;
}

/** Large enough that a round trip costs little, small enough that chunks in flight fit the memory. */
const CHUNK_LIMITS: ChunkLimits = { rows: 5_000, length: 8 * 1024 * 1024 };
/** Approximate size of a value that is not text. */
const VALUE_BYTES = 8;

type StoredValue = number | bigint | string | Uint8Array | null;
type Row = Readonly<Record<string, StoredValue>>;
type Position = (number | string | Uint8Array)[];

/** Rows that are migrated together, and the position behind them. */
interface RowGroup {
  readonly rows: readonly Row[];
  readonly position: readonly StoredValue[];
}

const FIRST_USES: Readonly<Record<string, RunsShape>> = { idempotency_keys: IDEMPOTENCY_KEYS, event_ids: EVENT_IDS };
const LOWEST_HASH = [Number.MIN_SAFE_INTEGER];

/** Tests use small chunks. */
export function openSqliteMigrationSource(dataFolder: string, limits: ChunkLimits = CHUNK_LIMITS): MigrationSource {
  if (!existsSync(storeFileOf(dataFolder)) && !existsSync(keyFileOf(dataFolder))) {
    throw new OperatorError(
      `The folder ${resolve(dataFolder)} has neither store.db nor keys.db. Name the data folder of the server with --data; where none ever ran there is nothing to move.`,
    );
  }
  const store = openForReading(storeFile(storeFileOf(dataFolder), 'reader'));
  try {
    return new SqliteMigrationSource(store, openForReading(keysFile(keyFileOf(dataFolder))), dataFolder, limits);
  } catch (error) {
    store.close();
    throw error;
  }
}

class SqliteMigrationSource implements MigrationSource {
  readonly logName: string;
  readonly storeId: string;
  readonly nextNumber: number;
  readonly parts = PART_NAMES;
  readonly #store: StoreConnection;
  readonly #keys: StoreConnection;
  readonly #dataFolder: string;
  readonly #limits: ChunkLimits;

  constructor(store: DatabaseSync, keys: DatabaseSync, dataFolder: string, limits: ChunkLimits) {
    this.logName = localLogName(logFolderOf(dataFolder));
    this.#store = new StoreConnection(store);
    this.#keys = new StoreConnection(keys);
    this.#dataFolder = dataFolder;
    this.#limits = limits;
    this.storeId = storeIdOf(this.#store);
    this.nextNumber = this.#store.get<{ next: number }>('SELECT max(next) AS next FROM sequences')?.next ?? 1;
  }

  async *chunks(part: string, after: string | null): AsyncGenerator<Chunk> {
    const groups = this.#groups(part, after === null ? null : positionIn(after));
    try {
      yield* chunksOf(part, this.#limits, groups);
    } catch (error) {
      throw this.#asOperatorError(part, error);
    }
  }

  async count(part: string): Promise<number> {
    try {
      if (FIRST_USES[part] !== undefined) return this.#groups(part, null).reduce((count) => count + 1, 0);
      return part === 'events' ? countStored(this.#store) : countIn(this.#connection(part), part);
    } catch (error) {
      throw this.#asOperatorError(part, error);
    }
  }

  async ledger(): Promise<TenantLedger> {
    return this.#store.steps(readAllHours);
  }

  async close(): Promise<void> {
    for (const { database } of [this.#store, this.#keys]) if (database.isOpen) database.close();
  }

  #groups(part: string, after: Position | null): Generator<RowGroup> {
    const shape = FIRST_USES[part];
    if (shape !== undefined) return firstUses(this.#store, shape, after);
    if (part === 'events') return storedEvents(this.#store, after);
    const rows = tableRows(this.#connection(part), part, after);
    return part === 'nodes' ? withState(this.#store, rows) : rows;
  }

  #connection(part: string): StoreConnection {
    return Object.hasOwn(ACCOUNT_TABLES, part) ? this.#keys : this.#store;
  }

  #asOperatorError(part: string, error: unknown): unknown {
    if (!isDamage(error) || !(error instanceof Error)) return error;
    const isOfKeys = this.#connection(part) === this.#keys;
    const file = isOfKeys ? keysFile(keyFileOf(this.#dataFolder)) : storeFile(storeFileOf(this.#dataFolder), 'reader');
    return new OperatorError(damageText(file, error.message), { cause: error });
  }
}

function countIn(connection: StoreConnection, table: string): number {
  return connection.get<{ count: number }>(`SELECT count(*) AS count FROM ${table}`)?.count ?? 0;
}

function* tableRows(connection: StoreConnection, part: string, after: Position | null): Generator<RowGroup> {
  const order = orderOf(connection, part);
  const orderBy = order.map((column) => `${part}.${column}`).join(', ');
  const from = part === 'nodes' ? 'nodes LEFT JOIN aliases ON aliases.node = nodes.no' : part;
  const behind = after === null ? '' : `WHERE (${orderBy}) > (${order.map(() => '?').join(', ')})`;
  const columns = order.includes('rowid') ? `*, ${part}.rowid AS rowid` : '*';
  const sql = `SELECT ${columns} FROM ${from} ${behind} ORDER BY ${orderBy}`;
  for (const row of connection.iterate<Row>(sql, ...(after ?? []))) {
    yield { rows: [row], position: order.map((column) => row[column] ?? null) };
  }
}

/** By which rows are stored, so that nothing is sorted; without columns that have one value in an embedded store. */
function orderOf(connection: StoreConnection, table: string): string[] {
  const keys = connection.all<{ name: string }>(
    `SELECT name FROM pragma_table_info(?) WHERE pk > 0 AND name NOT IN ('log', 'shard')
     AND (SELECT wr FROM pragma_table_list(?)) = 1 ORDER BY pk`,
    table,
    table,
  );
  return keys.length === 0 ? ['rowid'] : keys.map(({ name }) => name);
}

/** Adds the mutable state of nodes, which is read in the same order. */
function* withState(store: StoreConnection, groups: Iterable<RowGroup>): Generator<RowGroup> {
  let entries: Generator<Entry> | undefined;
  for (const { rows, position } of groups) {
    const no = position[0] as number;
    entries ??= store.runs(PROFILE_RUNS).all([no]);
    let entry: Entry | undefined;
    do entry = entries.next().value as Entry | undefined;
    while (entry !== undefined && (entry.key[0] as number) < no);
    if (entry?.key[0] !== no) throw new Error(`of node ${no} there is a row, and nothing in the runs`);
    yield { rows: [{ ...rows[0], ...stateOf(entry) }], position };
  }
}

/** In the order of their hashes. The secret of the hashes is migrated, too, so the target finds them. */
function* firstUses(store: StoreConnection, shape: RunsShape, after: Position | null): Generator<RowGroup> {
  const [hash = 0, rest = 0] = after === null ? [] : after.map(Number);
  for (const entry of store.runs(shape).all(after === null ? LOWEST_HASH : [hash, rest + 1])) {
    yield { rows: [{ hash: entry.key[0] ?? 0, rest: entry.key[1] ?? 0, ...useOf(shape, entry) }], position: entry.key };
  }
}

function useOf(shape: RunsShape, entry: Entry): Row {
  if (shape === EVENT_IDS) return { received_at: entry.values[0] as number };
  const { receivedAt, traceId, bodyHash } = keyUseOf(entry);
  return { received_at: receivedAt, trace_id: uuidBytes(traceId), body_hash: bodyHash };
}

function* storedEvents(store: StoreConnection, after: Position | null): Generator<RowGroup> {
  const blocks = store.iterate<BlockRow>(
    'SELECT first_event, tenant, numbers, texts, crc FROM events WHERE first_event > ? ORDER BY first_event',
    after?.[0] ?? 0,
  );
  const selectRecord = 'SELECT no, trace_id, received_at, key_id FROM records WHERE no = ?';
  let record: Row | undefined;
  for (const block of blocks) {
    const rows: Row[] = [];
    for (const event of unpackBlock(block.tenant, block)) {
      // Events of a record are consecutive.
      if (record?.['no'] !== event.record) record = store.get<Row>(selectRecord, event.record);
      if (record === undefined) throw new Error(`event ${event.no} is stored without its record`);
      const { no, tenant, node, timestamp, properties } = event;
      rows.push({
        ...record,
        ...{ no, tenant, node, timestamp, properties },
        user_index: event.userIndex,
        event_index: event.eventIndex,
        event_name: event.name,
        revenue: amountText(event.revenue),
        currency: currencyOfStored(event.revenue, properties),
        value: amountText(event.value),
      });
    }
    yield { rows, position: [block.first_event] };
  }
}

/** A chunk contains at least one group of rows, however large that is. */
function* chunksOf(part: string, limits: ChunkLimits, groups: Iterable<RowGroup>): Generator<Chunk> {
  const wanted = columnsOf(part);
  const noRows = () => ({ rows: 0, bytes: 0, columns: wanted.map((): MigratedValue[] => []) });
  let chunk = noRows();
  let last: readonly StoredValue[] = [];
  for (const { rows, position } of groups) {
    for (const row of rows) {
      for (const [index, [name, kind]] of wanted.entries()) {
        const value = migratedValue(row[name] ?? null, kind);
        chunk.bytes += typeof value === 'string' ? value.length : VALUE_BYTES;
        chunk.columns[index]?.push(value);
      }
      chunk.rows += 1;
    }
    last = position;
    if (chunk.rows < limits.rows && chunk.bytes < limits.length) continue;
    yield { ...chunk, position: positionText(last) };
    chunk = noRows();
  }
  if (chunk.rows > 0) yield { ...chunk, position: positionText(last) };
}

function migratedValue(value: StoredValue, kind: ColumnKind): MigratedValue {
  if (typeof value === 'bigint') return Number(value);
  return kind === 'uuid' && value instanceof Uint8Array ? uuidText(value) : value;
}

function positionText(position: readonly StoredValue[]): string {
  return JSON.stringify(position.map((value) => (value instanceof Uint8Array ? { hex: value.toHex() } : value)));
}

function positionIn(text: string): Position {
  const values = JSON.parse(text) as (number | string | { readonly hex: string })[];
  return values.map((value) => (typeof value === 'object' ? Buffer.from(value.hex, 'hex') : value));
}

/** One of the two files exists only once something was written: a missing file counts as empty. */
function openForReading(file: DatabaseFile): DatabaseSync {
  if (existsSync(file.file)) return openDatabase({ ...file, readOnly: true, pragmas: '', check: false });
  const database = new DatabaseSync(':memory:');
  file.create(database);
  return database;
}
