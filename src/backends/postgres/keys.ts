/**
 * Accounts, API keys and members on PostgreSQL: the stores of `backends/sql/`, and notifications of changed keys for
 * the caches of all servers (`key-changes.ts`). The stores own the pools that they are given.
 */

import type { MemberStore } from '../../members.ts';
import type { KeyStore } from '../../keys.ts';
import { SqlKeyStore } from '../sql/keys.ts';
import { SqlMemberStore } from '../sql/members.ts';
import { type KeyChangeListener, listenForKeyChanges } from './key-changes.ts';
import type { PostgresPool } from './pool.ts';
import { PostgresSqlDatabase } from './sql-database.ts';

export function openPostgresKeyStore(pool: PostgresPool): KeyStore {
  return new PostgresKeyStore(pool);
}

export function openPostgresMemberStore(pool: PostgresPool): MemberStore {
  return new SqlMemberStore(new PostgresSqlDatabase(pool));
}

class PostgresKeyStore extends SqlKeyStore {
  readonly #pool: PostgresPool;
  readonly #listeners: KeyChangeListener[] = [];

  constructor(pool: PostgresPool) {
    super(new PostgresSqlDatabase(pool));
    this.#pool = pool;
  }

  watch(onChange: (keyId: string | undefined) => void): void {
    this.#listeners.push(listenForKeyChanges(this.#pool.options, onChange));
  }

  override async close(): Promise<void> {
    for (const listener of this.#listeners) listener.close();
    await super.close();
  }
}
