/**
 * Opens the long-lived SQLite files of Sluice (keys, store): private to their owner, WAL, of this version's format,
 * checked for damage, and refused with a message that says what to do. Several threads and processes may open
 * one file; each connection belongs to one thread.
 */

import { closeSync, existsSync, mkdirSync, openSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { messageOf, OperatorError } from '../../errors.ts';
import type { EngineTypes } from '../sql/tables.ts';
import { SQLITE, sqliteCodeOf } from '../../runtime/sqlite-errors.ts';
import { fullDiskText, isFullDisk } from './disk.ts';
import { isWalOfAnother, markCommit } from './wal-chain.ts';

export const BUSY_TIMEOUT_MS = 5_000;
export const RETRY_MS = 20;

export const ENGINE_TYPES: EngineTypes = {
  number: 'INTEGER PRIMARY KEY',
  text: 'TEXT',
  integer: 'INTEGER',
  smallInteger: 'INTEGER',
  decimal: 'TEXT',
  bytes: 'BLOB',
  uuid: 'TEXT',
  uuidBytes: 'BLOB',
  tableEnd: 'STRICT',
  keyedTableEnd: 'STRICT, WITHOUT ROWID',
  sumsTableEnd: () => 'STRICT, WITHOUT ROWID',
};

export interface DatabaseFile {
  readonly file: string;
  /** "key file", "store": its name in messages. */
  readonly name: string;
  /** One more for every change of the format. Until 1.0 files of older ones are refused, not migrated. */
  readonly version: number;
  /** Creates the tables in a new file. Runs within a transaction. */
  readonly create: (database: DatabaseSync) => void;
  /** Persistent settings (page size), applied while the file is empty: later they would only write to it. */
  readonly newFilePragmas: string;
  readonly pragmas: string;
  /** Nothing is created, and a write-ahead log stays as it is. */
  readonly readOnly?: boolean;
  /** Whether to check the whole file for damage: for small ones. */
  readonly check: boolean;
  /** What to do when it is damaged and there is no backup. */
  readonly withoutBackup: string;
}

export function openDatabase(what: DatabaseFile): DatabaseSync {
  try {
    if (what.readOnly !== true) makePrivateFile(what.file);
    refuseForeignWal(what);
    return whenFree(() => open(what), BUSY_TIMEOUT_MS);
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw new OperatorError(explain(what, error), { cause: error });
  }
}

/** IMMEDIATE takes the write lock at the start, where SQLite waits for it; a later upgrade could only fail. */
export function transaction<T>(database: DatabaseSync, work: () => T, waitMsMax = BUSY_TIMEOUT_MS): T {
  whenFree(() => database.exec('BEGIN IMMEDIATE'), waitMsMax);
  try {
    const result = work();
    markCommit(database);
    database.exec('COMMIT');
    return result;
  } catch (error) {
    // Some errors (a full disk) make SQLite roll back by itself.
    if (database.isTransaction) database.exec('ROLLBACK');
    throw error;
  }
}

/** The values of the only column. */
export function textsIn(database: DatabaseSync, sql: string, ...parameters: SQLInputValue[]): string[] {
  return database
    .prepare(sql)
    .all(...parameters)
    .flatMap((row) => Object.values(row).map(String));
}

export function damageIn(database: DatabaseSync, findingsMax: number): string[] {
  return textsIn(database, `PRAGMA quick_check(${findingsMax})`).filter((text) => text !== 'ok');
}

export function isBusy(error: unknown): boolean {
  return sqliteCodeOf(error) === SQLITE.busy;
}

/** For damage that SQLite does not see. */
export function damaged(message: string): Error {
  return Object.assign(new Error(message), { errcode: SQLITE.corrupt });
}

export function isDamage(error: unknown): boolean {
  const code = sqliteCodeOf(error);
  return code === SQLITE.corrupt || code === SQLITE.notadb;
}

/**
 * An existing file is never opened here: closing it would drop the locks that SQLite holds on it for another connection
 * of this process (POSIX locks belong to the process, not to the descriptor).
 */
function makePrivateFile(file: string): void {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  if (existsSync(file)) return;
  try {
    closeSync(openSync(file, 'wx', 0o600));
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  }
}

/**
 * SQLite does not wait for a lock when it switches a file to WAL, it fails; two processes that start at once on a new
 * file conflict there for a moment.
 */
function whenFree<T>(attempt: () => T, waitMsMax: number): T {
  const giveUpAt = performance.now() + waitMsMax;
  for (;;) {
    try {
      return attempt();
    } catch (error) {
      if (!isBusy(error) || performance.now() >= giveUpAt) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_MS);
    }
  }
}

function open(what: DatabaseFile): DatabaseSync {
  const { readOnly = false } = what;
  const options = { readOnly, timeout: BUSY_TIMEOUT_MS, enableForeignKeyConstraints: true };
  const database = new DatabaseSync(what.file, options);
  try {
    if (!readOnly && statSync(what.file).size === 0) database.exec(what.newFilePragmas);
    database.exec(what.pragmas);
    if (what.check) {
      const [finding] = damageIn(database, 1);
      if (finding !== undefined) throw new OperatorError(damageText(what, finding));
    }
    createOnce(database, what);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

function createOnce(database: DatabaseSync, what: DatabaseFile): void {
  if (!isNew(database, what)) return;
  if (what.readOnly === true) {
    throw new OperatorError(`The ${what.name} ${what.file} is empty. Start the server once, which fills it.`);
  }
  transaction(database, () => {
    if (!isNew(database, what)) return;
    what.create(database);
    database.exec(`PRAGMA user_version = ${what.version}`);
  });
}

/** Refuses files of other versions. */
function isNew(database: DatabaseSync, { file, name, version: own, withoutBackup }: DatabaseFile): boolean {
  const version = Number(database.prepare('PRAGMA user_version').get()?.['user_version']);
  if (version > own) {
    throw new OperatorError(
      `The ${name} ${file} was written by a newer Sluice (its version is ${version}, this one knows ` +
        `${own}). Start that newer version, or use another data folder.`,
    );
  }
  if (version > 0 && version < own) {
    throw new OperatorError(
      `The ${name} ${resolve(file)} was written by an older version of Sluice, before 1.0, in a format that this one does not ` +
        `read (${version}; ${own} is the oldest). Nothing in it was changed. Use that version; or, with its -wal and -shm, ${withoutBackup}`,
    );
  }
  return version === 0;
}

function explain(what: DatabaseFile, error: unknown): string {
  const reason = messageOf(error);
  if (isDamage(error)) return damageText(what, reason);
  if (isFullDisk(error)) return fullDiskText(what.file);
  if (isBusy(error)) {
    return `The ${what.name} ${what.file} has been locked by another program for ${BUSY_TIMEOUT_MS / 1_000} s. End that program, then try again.`;
  }
  return `The ${what.name} ${what.file} cannot be opened (${reason}). Check that the folder exists on a disk with free space and that this user may read and write it.`;
}

/** Before SQLite opens the file, because that mixes the two permanently. */
export function refuseForeignWal({ file, name }: Pick<DatabaseFile, 'file' | 'name'>): void {
  if (!isWalOfAnother(file)) return;
  const path = resolve(file);
  throw new OperatorError(
    `The ${name} ${path} and its write-ahead log ${path}-wal are of different moments: one of them was replaced without the ` +
      'other. Together they would be damaged, so nothing was opened or changed. Put back the one that belongs to the other, or ' +
      `both from the same copy. If ${path} is from a backup, or was copied while no server ran, it is complete by itself: move ` +
      `${path}-wal and ${path}-shm elsewhere, then start again.`,
  );
}

export function damageText({ file, name, withoutBackup }: DatabaseFile, reason: string): string {
  return (
    `The ${name} ${file} is damaged (${reason}). Nothing in it was changed. Stop Sluice and put back a copy from a backup, ` +
    `without ${file}-wal and ${file}-shm next to it. Without a backup, ${withoutBackup}`
  );
}
