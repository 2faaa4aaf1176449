/**
 * The embedded installation as the source of a migration (`migration/parts.ts`): all of `store.db` and `keys.db`,
 * opened for reading only. The caller holds the lock of the data folder, so no server writes meanwhile. Files of
 * another version are refused: a server of this version has to migrate them first, which a reader cannot.
 */

import { existsSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { messageOf, OperatorError } from '../../../errors.ts';
import {
  type Chunk,
  columnsOf,
  type MigrationSource,
  type PartName,
  type TenantLedger,
} from '../../../migration/parts.ts';
import { readAllHours } from '../../sql/ledger.ts';
import {
  applyMigrations,
  BUSY_TIMEOUT_MS,
  type DatabaseFile,
  damageText,
  isDamage,
  refuseForeignWal,
  refuseUnreleasedFormat,
} from '../database.ts';
import { keysFile } from '../keys-schema.ts';
import { localLogName } from '../log/name.ts';
import { CHUNK_LIMITS, type ChunkLimits, chunksOf, positionIn, type RowGroup, type StoredValue } from './chunks.ts';
import { countInTables, rowsOfTables, type TablePart } from './events.ts';
import { countFirstUses, firstUses, isFirstUses } from './first-uses.ts';
import { isPlain, PLAIN_TABLES, type PlainPart } from './parts.ts';
import { PROFILE_RUNS, stateOf } from '../store/profile-runs.ts';
import { storeIdOf, StoreConnection } from '../store/connection.ts';
import type { Entry } from '../sorted-runs/entries.ts';
import { storeFile } from '../store/schema.ts';

export interface SourceSetup {
  readonly storeFile: string;
  readonly keyFile: string;
  readonly logFolder: string;
  /** For tests. */
  readonly limits?: ChunkLimits;
}

export function openSqliteMigrationSource(setup: SourceSetup): MigrationSource {
  if (!existsSync(setup.storeFile) && !existsSync(setup.keyFile)) {
    const [folder, store, keys] = [dirname(setup.storeFile), basename(setup.storeFile), basename(setup.keyFile)];
    throw new OperatorError(
      `The folder ${resolve(folder)} has neither ${store} nor ${keys}. Name the data folder of the server with --data; where none ever ran there is nothing to move.`,
    );
  }
  const store = openForReading(storeFile(setup.storeFile, 'reader'));
  try {
    const keys = openForReading(keysFile(setup.keyFile));
    return new SqliteMigrationSource(store, keys, localLogName(setup.logFolder), setup);
  } catch (error) {
    store.close();
    throw error;
  }
}

class SqliteMigrationSource implements MigrationSource {
  readonly logName: string;
  readonly storeId: string;
  readonly nextNumber: number;
  readonly #store: StoreConnection;
  readonly #keys: StoreConnection;
  readonly #setup: SourceSetup;

  constructor(store: DatabaseSync, keys: DatabaseSync, logName: string, setup: SourceSetup) {
    this.logName = logName;
    this.#store = new StoreConnection(store);
    this.#keys = new StoreConnection(keys);
    this.#setup = setup;
    this.storeId = storeIdOf(this.#store);
    this.nextNumber = this.#store.get<{ next: number }>('SELECT max(next) AS next FROM sequences')?.next ?? 1;
  }

  async *chunks(part: PartName, after: string | null): AsyncGenerator<Chunk> {
    const groups = isPlain(part)
      ? plainRows(this.#connection(part), part, after)
      : isFirstUses(part)
        ? firstUses(this.#store, part, after)
        : rowsOfTables(this.#store, part, after);
    try {
      yield* chunksOf(part, this.#setup.limits ?? CHUNK_LIMITS, groups);
    } catch (error) {
      throw this.#asOperatorError(part, error);
    }
  }

  async count(part: PartName): Promise<number> {
    try {
      if (isFirstUses(part)) return countFirstUses(this.#store, part);
      if (!isPlain(part)) return countInTables(this.#store, part satisfies TablePart);
      // Without joined tables: they add columns, not rows.
      const [table = ''] = PLAIN_TABLES[part].from.split(' ');
      return this.#connection(part).get<{ count: number }>(`SELECT count(*) AS count FROM ${table}`)?.count ?? 0;
    } catch (error) {
      throw this.#asOperatorError(part, error);
    }
  }

  async ledger(): Promise<TenantLedger> {
    return readAllHours(this.#store.queries);
  }

  async close(): Promise<void> {
    for (const { database } of [this.#store, this.#keys]) if (database.isOpen) database.close();
  }

  #connection(part: PlainPart): StoreConnection {
    return PLAIN_TABLES[part].file === 'keys' ? this.#keys : this.#store;
  }

  #asOperatorError(part: PartName, error: unknown): unknown {
    if (!isDamage(error) || !(error instanceof Error)) return error;
    const isOfKeys = isPlain(part) && PLAIN_TABLES[part].file === 'keys';
    const file = isOfKeys ? keysFile(this.#setup.keyFile) : storeFile(this.#setup.storeFile, 'reader');
    return new OperatorError(damageText(file, error.message), { cause: error });
  }
}

function* plainRows(connection: StoreConnection, part: PlainPart, after: string | null): Generator<RowGroup> {
  const { from, order, columns = {} } = PLAIN_TABLES[part];
  const [table = ''] = from.split(' ');
  const wanted = columnsOf(part).map(([name]) => columns[name] ?? `${table}.${name}`);
  const orderBy = order.join(', ');
  const behind = after === null ? '' : `WHERE (${orderBy}) > (${order.map(() => '?').join(', ')})`;
  // The position follows the columns.
  const sql = `SELECT ${[...wanted, ...order].join(', ')} FROM ${from} ${behind} ORDER BY ${orderBy}`;
  const statement = connection.database.prepare(sql);
  statement.setReturnArrays(true);
  const rows = statement.iterate(...(after === null ? [] : positionIn(after)));
  const withState = part === 'nodes' ? addingState(connection) : undefined;
  for (const row of rows as unknown as Iterable<readonly StoredValue[]>) {
    yield { rows: [withState === undefined ? row : withState(row)], position: row.slice(wanted.length) };
  }
}

/**
 * Call it with one row of `nodes` after the other, in order: adds their mutable state, which is read in the same order.
 */
function addingState(store: StoreConnection): (row: readonly StoredValue[]) => readonly StoredValue[] {
  const names = columnsOf('nodes').map(([name]) => name);
  const numberAt = names.indexOf('no');
  let entries: Generator<Entry> | undefined;
  return (row) => {
    const no = row[numberAt] as number;
    entries ??= store.runs(PROFILE_RUNS).all([no]);
    for (;;) {
      const { value: entry } = entries.next() as IteratorResult<Entry, undefined>;
      if (entry === undefined || (entry.key[0] as number) > no)
        throw new Error(`of node ${no} there is a row, and nothing in the runs`);
      if (entry.key[0] !== no) continue;
      const state: Readonly<Record<string, StoredValue>> = { ...stateOf(entry) };
      return names.map((name, index) => state[name] ?? row[index] ?? null);
    }
  };
}

/** One of the two files exists only once something was written: a missing file counts as empty. */
function emptyDatabase({ migrations }: DatabaseFile): DatabaseSync {
  const database = new DatabaseSync(':memory:');
  applyMigrations(database, migrations);
  return database;
}

function openForReading(file: DatabaseFile): DatabaseSync {
  const path = resolve(file.file);
  if (!existsSync(path)) return emptyDatabase(file);
  refuseForeignWal(file);
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
    refuseUnreleasedFormat(database, file);
    const version = Number(database.prepare('PRAGMA user_version').get()?.['user_version']);
    if (version === file.migrations.length) return database;
    throw new OperatorError(
      version < file.migrations.length
        ? `The ${file.name} ${path} is of an older Sluice. Start and stop this version on it once, then move it.`
        : `The ${file.name} ${path} was written by a newer Sluice. Use that version to move it.`,
    );
  } catch (error) {
    database?.close();
    if (error instanceof OperatorError) throw error;
    const reason = messageOf(error);
    const words = isDamage(error) ? damageText(file, reason) : `The ${file.name} ${path} cannot be read (${reason}).`;
    throw new OperatorError(words, { cause: error });
  }
}
