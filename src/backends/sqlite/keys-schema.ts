/**
 * The file `keys.db`: the tables of accounts, keys and members (`../sql/account-tables.ts`) and the installation that
 * the file belongs to. It is only ever opened through here, so the first call creates it. Only its owner may read it.
 */

import type { DatabaseSync } from 'node:sqlite';
import { ACCOUNT_TABLES } from '../sql/account-tables.ts';
import { createTables, type EngineTypes } from '../sql/tables.ts';
import { type DatabaseFile, openDatabase } from './database.ts';

/** One more for every change of the format until 1.0: files of these versions are refused. */
const UNRELEASED_FORMATS: readonly string[] = ['', '', '', '', ''];

export const ENGINE_TYPES: EngineTypes = {
  number: 'INTEGER PRIMARY KEY',
  text: 'TEXT',
  integer: 'INTEGER',
  smallInteger: 'INTEGER',
  real: 'REAL',
  bytes: 'BLOB',
  uuid: 'TEXT',
  uuidBytes: 'BLOB',
  tableEnd: 'STRICT',
  keyedTableEnd: 'STRICT, WITHOUT ROWID',
  sumsTableEnd: () => 'STRICT, WITHOUT ROWID',
};

const CREATE = `
  ${createTables(ACCOUNT_TABLES, ENGINE_TYPES)}
  -- One row once a server has run: the installation that this file belongs to (installation.ts).
  CREATE TABLE belongs_to (installation TEXT NOT NULL) STRICT;`;

export function keysFile(file: string): DatabaseFile {
  return {
    file,
    name: 'key file',
    migrations: [...UNRELEASED_FORMATS, CREATE],
    oldest: UNRELEASED_FORMATS.length + 1,
    newFilePragmas: '',
    pragmas: 'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;',
    check: true,
    withoutBackup:
      'move all three away, make new keys with "sluice keys create" and let people in with "sluice invite"; the event log is in other files and is not affected.',
  };
}

export function openKeysDatabase(file: string): DatabaseSync {
  return openDatabase(keysFile(file));
}
