/**
 * Sessions and passwords of a member, for `members.ts`, inside a transaction of its caller, who has the lock of the
 * member's row: a password that is changed at the same moment is either seen, or waits. Sessions that have expired go
 * with the next one that is started, a bounded number at a time.
 */

import { type CheckedMember, type NewSession, SESSIONS_PER_MEMBER_MAX } from '../../members.ts';
import type { PostgresClient, Queryable } from './pool.ts';

/** More than a start adds. */
const REMOVED_MAX = 1_000;

/** Whether the member is there and has that password, and then stays so until the transaction ends. */
export async function lockIfStill(client: PostgresClient, { id, passwordHash }: CheckedMember): Promise<boolean> {
  const sql = 'SELECT 1 FROM members WHERE id = $1 AND password_hash = $2 FOR NO KEY UPDATE';
  return (await client.query(sql, [id, passwordHash])).rowCount === 1;
}

/** Whoever knew the old one is out: every session ends. */
export async function setPassword(client: PostgresClient, memberId: string, passwordHash: string): Promise<void> {
  await client.query('UPDATE members SET password_hash = $1 WHERE id = $2', [passwordHash, memberId]);
  await client.query('DELETE FROM sessions WHERE member_id = $1', [memberId]);
}

/** False if the member is gone. */
export async function insertSession(
  client: PostgresClient,
  memberId: string,
  { tokenHash, createdAt, expiresAt, replaces }: NewSession,
): Promise<boolean> {
  const signedIn = 'UPDATE members SET last_signed_in_at = $1 WHERE id = $2';
  if ((await client.query(signedIn, [createdAt, memberId])).rowCount === 0) return false;
  if (replaces !== null) await deleteSession(client, replaces);
  await client.query(
    `DELETE FROM sessions WHERE token_hash IN (
       SELECT token_hash FROM sessions WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)`,
    [createdAt, REMOVED_MAX],
  );
  await client.query(
    `DELETE FROM sessions WHERE token_hash IN (
       SELECT token_hash FROM sessions WHERE member_id = $1 ORDER BY renewed_at DESC OFFSET $2)`,
    [memberId, SESSIONS_PER_MEMBER_MAX - 1],
  );
  await client.query(
    'INSERT INTO sessions (token_hash, member_id, created_at, renewed_at, expires_at) VALUES ($1, $2, $3, $3, $4)',
    [tokenHash, memberId, createdAt, expiresAt],
  );
  return true;
}

export async function deleteSession(connection: Queryable, tokenHash: Uint8Array): Promise<void> {
  await connection.query('DELETE FROM sessions WHERE token_hash = $1', [tokenHash]);
}
