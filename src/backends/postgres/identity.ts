/**
 * Identifies the database. Processors on one database share the partitions of a log, so they must know whether they use
 * the same one. The id combines the random id that was created with the tables and the database's oid, so that a
 * logical copy (dump, template) is not mistaken for the original. It survives renaming the database. A physical copy of
 * the server has the same id.
 */

import { OperatorError } from '../../errors.ts';
import type { Queryable } from './pool.ts';

export async function databaseIdOf(connection: Queryable): Promise<string> {
  const { rows } = await connection.query<{ id: string }>(
    `SELECT md5(id::text || (SELECT oid FROM pg_database WHERE datname = current_database()))::uuid::text AS id
       FROM identity`,
  );
  const [row] = rows;
  if (row === undefined) throw new Error('the table identity has no row');
  return row.id;
}

/**
 * The id of the installation, which the log and the servers belong to as well. Unlike `databaseIdOf`, it survives a
 * dump.
 */
export async function installationOf(connection: Queryable): Promise<string> {
  const { rows } = await connection.query<{ id: string }>('SELECT id::text FROM identity');
  return rows[0]?.id ?? '';
}

/** Whether a record of this log was ever processed into the database. */
export async function knowsLog(connection: Queryable, logName: string): Promise<boolean> {
  const { rows } = await connection.query('SELECT 1 FROM positions WHERE log = $1 LIMIT 1', [logName]);
  return rows.length > 0;
}

/**
 * Binds the database to its topic: the first one it is used with. Throws for any other topic, with what to do. One
 * topic may feed several databases.
 */
export async function tieToTopic(connection: Queryable, logName: string): Promise<void> {
  await connection.query('UPDATE identity SET log = $1 WHERE log IS NULL', [logName]);
  const { rows } = await connection.query<{ log: string }>('SELECT log FROM identity');
  const known = rows[0]?.log ?? logName;
  if (known === logName) return;
  throw new OperatorError(
    `The database in STORE_URL is written from the Kafka topic with the id ${idIn(known)}, but the one in LOG_URL has ` +
      `the id ${idIn(logName)}: it is of another installation, or was deleted and made again. Set LOG_URL or STORE_URL to what ` +
      'belongs together. If the old topic is gone or processed to its end and this one is to take its place, run in the ' +
      'database: UPDATE sluice.identity SET log = NULL',
  );
}

function idIn(logName: string): string {
  return logName.replace(/^kafka:/, '');
}
