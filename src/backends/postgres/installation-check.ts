/**
 * Checks that a connection reaches the database that the server was started with. While a server runs, its STORE_URL
 * may begin to point at another database: databases are renamed, or dropped and created again. A connection never
 * changes its database, so each is checked once, before its first use (`pool.ts`); nothing is ever read from or written
 * to the database of another installation. A restored dump of the same database passes.
 */

import { StoreUnavailableError } from '../../store-writer.ts';
import { codeOf } from './pool-errors.ts';

export interface InstallationCheck {
  /** The installation that the server was started with; null while that is unknown, and then nothing is checked. */
  readonly expected: () => string | null;
  /** Called after each check. */
  readonly onChecked: (isExpected: boolean) => void;
}

/** The one query that the check needs. */
interface IdentityQuery {
  query(statement: string): Promise<{ readonly rows: unknown[] }>;
}

/** SQLSTATE undefined_table. */
const NO_TABLE = '42P01';

/** Rejects with `StoreUnavailableError`: the right database may be back soon. */
export async function assertInstallation(connection: IdentityQuery, check: InstallationCheck): Promise<void> {
  const expected = check.expected();
  if (expected === null) return;
  const found = await findInstallation(connection);
  check.onChecked(found === expected);
  if (found === expected) return;
  throw new StoreUnavailableError(
    `STORE_URL now points to a different database than at startup: ${found === undefined ? 'to one without the tables of Sluice' : `to that of the installation ${found}`}, ` +
      `and this server belongs to the installation ${expected}. Nothing is read from it or written to it. Make STORE_URL ` +
      'lead to the right database again: the server then continues by itself',
  );
}

/** Undefined for a database without tables. */
async function findInstallation(connection: IdentityQuery): Promise<string | undefined> {
  try {
    const { rows } = await connection.query('SELECT id::text FROM identity');
    return (rows as { id: string }[])[0]?.id;
  } catch (error) {
    if (codeOf(error) === NO_TABLE) return undefined;
    throw error;
  }
}
