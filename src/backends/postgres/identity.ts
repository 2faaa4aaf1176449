/**
 * Which database this is: the processors of one share the partitions of a log, so they have to know that they are on the
 * same, and those of another that they are not. The id is the random one that the tables were made with, mixed with the
 * number that the server gave the database, so that a copy (a dump, a template) is not taken for the original. It stays the
 * same when the database is renamed. A copy of the server's files has the same one.
 */

import type { Queryable } from './pool.ts';

/** In SQL: which database on which server. A dump that is restored is always another one. */
export const NUMBERED_DATABASE = `(
  SELECT md5(id::text || (SELECT oid FROM pg_database WHERE datname = current_database())
    || (SELECT system_identifier FROM pg_control_system()))::uuid
  FROM identity)`;

export async function databaseIdOf(connection: Queryable): Promise<string> {
  const { rows } = await connection.query<{ id: string }>(
    `SELECT md5(id::text || (SELECT oid FROM pg_database WHERE datname = current_database()))::uuid::text AS id
       FROM identity`,
  );
  const [row] = rows;
  if (row === undefined) throw new Error('the table identity has no row');
  return row.id;
}
