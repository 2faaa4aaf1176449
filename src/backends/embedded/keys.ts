/**
 * Accounts, API keys and members of an embedded server: the store of `backends/sql/` on the SQLite file `keys.db`, which
 * also names the installation that it belongs to. Only its owner may read it. Any number of connections may be open on
 * it, so the command line works with a running server; the first one creates it.
 */

import type { KeyStore } from '../../keys.ts';
import { ACCOUNT_TABLES } from '../sql/account-tables.ts';
import { SqlKeyStore } from '../sql/keys.ts';
import { createTables } from '../sql/tables.ts';
import { type DatabaseFile, ENGINE_TYPES } from './database.ts';
import { SqliteSqlDatabase } from './sql-database.ts';

const CREATE = `
  ${createTables(ACCOUNT_TABLES, ENGINE_TYPES)}
  -- One row once a server has run: the installation that this file belongs to (installation.ts).
  CREATE TABLE belongs_to (installation TEXT NOT NULL) STRICT;`;

export function keysFile(file: string): DatabaseFile {
  return {
    file,
    name: 'key file',
    version: 6,
    create: (database) => database.exec(CREATE),
    newFilePragmas: '',
    pragmas: 'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;',
    check: true,
    withoutBackup:
      'move all three away, make new keys with "sluice keys create" and let people in with "sluice invite"; the event log is in other files and is not affected.',
  };
}

export function openSqliteKeyStore(file: string): KeyStore {
  return new SqlKeyStore(new SqliteSqlDatabase(keysFile(file)));
}
