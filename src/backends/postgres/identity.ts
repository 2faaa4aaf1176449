/**
 * Identifies the database. Processors on one database share the partitions of a log, so they must know whether they use
 * the same one. The id combines the random id that was created with the tables and the database's oid, so that a
 * logical copy (dump, template) is not mistaken for the original. It survives renaming the database. A physical copy of
 * the server has the same id.
 */

import { OperatorError } from '../../errors.ts';
import { type Queryable, rowOf } from './pool.ts';

export async function databaseIdOf(connection: Queryable): Promise<string> {
  const found = await connection.query<{ id: string }>(
    `SELECT md5(id::text || (SELECT oid FROM pg_database WHERE datname = current_database()))::uuid::text AS id
       FROM identity`,
  );
  return rowOf(found).id;
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

/** The name of the log on Kafka that the database is written from; null before the first start with one. */
export async function topicOf(connection: Queryable): Promise<string | null> {
  const { rows } = await connection.query<{ log: string | null }>('SELECT log FROM identity');
  return rows[0]?.log ?? null;
}

interface TopicLog {
  readonly name: string;
  /** By partition: the first position that is kept, where that is not 0. */
  beginnings(): Promise<ReadonlyMap<number, number>>;
}

/**
 * Binds the database to its topic: the first one it is used with. Throws for any other topic, with what to do. One
 * topic may feed several databases. A database that is new to the topic begins with what the topic has now: only then
 * are records that left it counted as lost. From then on a partition without a position begins at 0, so that what Kafka
 * removes before it is processed is missing.
 */
export async function tieToTopic(connection: Queryable, log: TopicLog): Promise<void> {
  if ((await topicOf(connection)) === null) {
    const beginnings = await log.beginnings();
    await connection.query(
      `WITH tied AS (UPDATE identity SET log = $1 WHERE log IS NULL RETURNING log)
       INSERT INTO positions (log, partition, position)
       SELECT log, partition, position FROM tied, unnest($2::int[], $3::int8[]) AS kept (partition, position)
        WHERE NOT EXISTS (SELECT FROM positions WHERE positions.log = tied.log)`,
      [log.name, [...beginnings.keys()], [...beginnings.values()]],
    );
  }
  const problem = await problemOfTopic(connection, log.name);
  if (problem !== null) throw new OperatorError(problem);
}

/** Why a server cannot use this topic with the database; null if it can. */
export async function problemOfTopic(connection: Queryable, logName: string): Promise<string | null> {
  const known = await topicOf(connection);
  if (known === null || known === logName) return null;
  return (
    `The database in STORE_URL is written from the Kafka topic with the id ${idIn(known)}, but the one in LOG_URL has ` +
    `the id ${idIn(logName)}: it is of another installation, or was deleted and made again. Set LOG_URL or STORE_URL to what ` +
    'belongs together. If the old topic is gone or processed to its end and this one is to take its place, run in the ' +
    'database: UPDATE sluice.identity SET log = NULL'
  );
}

/** The same for a topic that does not exist, in a database that is written from the log `known`. */
export function problemOfMissingTopic(known: string): string {
  return (
    `The database in STORE_URL is written from the Kafka topic with the id ${idIn(known)}, but the one in LOG_URL does not ` +
    'exist: LOG_URL is wrong, or the topic was deleted. Set LOG_URL to the topic of this database. If that is gone, run in ' +
    'the database: UPDATE sluice.identity SET log = NULL. The next start then creates the topic.'
  );
}

/** Why a server without LOG_URL cannot use the database; null if it can. */
export async function problemWithoutTopic(connection: Queryable): Promise<string | null> {
  const known = await topicOf(connection);
  if (known === null) return null;
  return (
    `The database in STORE_URL is written from the Kafka topic with the id ${idIn(known)}, but LOG_URL is not set: this ` +
    'server would keep its requests in its data folder, and not see those that wait in the topic. Set LOG_URL as on the ' +
    'other servers. To process what the log of a data folder still has, or to go back to such logs when the topic is ' +
    'processed to its end, run in the database: UPDATE sluice.identity SET log = NULL'
  );
}

/** Why a server that was started with the log `logName` must be restarted; null if it may continue. */
export async function problemOfReplacedTopic(connection: Queryable, logName: string): Promise<string | null> {
  const known = await topicOf(connection);
  if (known === null || known === logName) return null;
  return (
    `the database in STORE_URL is now written from the Kafka topic with the id ${idIn(known)}, and this server was started ` +
    `with the id ${idIn(logName)}: restart it`
  );
}

function idIn(logName: string): string {
  return logName.replace(/^kafka:/, '');
}
