/**
 * Accounts, API keys and members on PostgreSQL: the stores of `backends/sql/`, which own the pools that they are given.
 */

import type { KeyStore } from '../../keys.ts';
import type { MemberStore } from '../../members.ts';
import { SqlKeyStore } from '../sql/keys.ts';
import { SqlMemberStore } from '../sql/members.ts';
import type { PostgresPool } from './pool.ts';
import { PostgresSqlDatabase } from './sql-database.ts';

export function openPostgresKeyStore(pool: PostgresPool): KeyStore {
  return new SqlKeyStore(new PostgresSqlDatabase(pool));
}

export function openPostgresMemberStore(pool: PostgresPool): MemberStore {
  return new SqlMemberStore(new PostgresSqlDatabase(pool));
}
