/**
 * Accounts, API keys and members on PostgreSQL: the store of `backends/sql/`, which owns the pool that it is given.
 */

import type { KeyStore } from '../../keys.ts';
import { SqlKeyStore } from '../sql/keys.ts';
import type { PostgresPool } from './pool.ts';
import { PostgresSqlDatabase } from './sql-database.ts';

export function openPostgresKeyStore(pool: PostgresPool): KeyStore {
  return new SqlKeyStore(new PostgresSqlDatabase(pool));
}
