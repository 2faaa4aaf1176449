/**
 * Accounts, API keys and members of an embedded server: the stores of `backends/sql/` on the SQLite file `keys.db`. Any
 * number of connections may be open on it, so the command line works beside a running server.
 */

import type { MemberStore } from '../../members.ts';
import type { KeyStore } from '../../keys.ts';
import { SqlKeyStore } from '../sql/keys.ts';
import { SqlMemberStore } from '../sql/members.ts';
import { keysFile } from './keys-schema.ts';
import { openSqlDatabase } from './sql-database.ts';

export function openSqliteKeyStore(file: string): KeyStore {
  return new SqlKeyStore(openSqlDatabase(keysFile(file)));
}

export function openSqliteMemberStore(file: string): MemberStore {
  return new SqlMemberStore(openSqlDatabase(keysFile(file)));
}
