/**
 * Members, sessions, invitations and attempts on PostgreSQL, a `MemberStore` that any number of nodes share.
 *
 * What is decided on what was read is decided under row locks, taken in this order: the account (invitations, who joins
 * and who leaves), the invitation, the member, its sessions. What two of them still manage to get into each other's way
 * about is tried again; after a few times the store counts as unavailable. The store owns the pool that it is given.
 */

import {
  type Acceptance,
  type AttemptCount,
  type AttemptRuling,
  type CheckedMember,
  comparableEmail,
  type Invitation,
  type Member,
  type MemberStore,
  type MemberWithPassword,
  type NewInvitation,
  type NewSession,
  type Session,
} from '../../members.ts';
import { StoreConflictError, StoreUnavailableError } from '../../store-writer.ts';
import { forgiveAttempt, HasToWait, takeAttempt } from './member-attempts.ts';
import { deleteSession, insertSession, lockIfStill, setPassword } from './member-sessions.ts';
import type { PostgresClient, PostgresPool, Queryable } from './pool.ts';

const CONFLICT_ATTEMPTS = 5;
/** More than an invitation adds. */
const REMOVED_MAX = 1_000;

const MEMBER_COLUMNS = `
  members.id, members.account_id AS "accountId", accounts.name AS "accountName", members.email,
  members.created_at AS "createdAt", members.last_signed_in_at AS "lastSignedInAt"`;
const FROM_MEMBERS = 'FROM members JOIN accounts ON accounts.id = members.account_id';

const SELECT_OPEN_INVITATIONS = `
  SELECT invitations.id, invitations.account_id AS "accountId", accounts.name AS "accountName", invitations.kind,
         invitations.email, invitations.created_at AS "createdAt", invitations.expires_at AS "expiresAt"
  FROM invitations JOIN accounts ON accounts.id = invitations.account_id
  WHERE invitations.expires_at > $1
    AND (invitations.kind <> 'first'
         OR NOT EXISTS (SELECT 1 FROM members WHERE members.account_id = invitations.account_id))`;

export function openPostgresMemberStore(pool: PostgresPool): MemberStore {
  return new PostgresMemberStore(pool);
}

type SessionRow = Member & { startedAt: number; renewedAt: number; expiresAt: number };

class PostgresMemberStore implements MemberStore {
  readonly #pool: PostgresPool;

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  async members(accountId: string): Promise<Member[]> {
    const sql = `SELECT ${MEMBER_COLUMNS} ${FROM_MEMBERS} WHERE members.account_id = $1
                 ORDER BY members.created_at, members.no`;
    return (await this.#pool.query<Member>(sql, [accountId])).rows;
  }

  async findMember(email: string): Promise<MemberWithPassword | undefined> {
    const sql = `SELECT ${MEMBER_COLUMNS}, members.password_hash AS "passwordHash" ${FROM_MEMBERS}
                 WHERE members.email_lower = $1`;
    return (await this.#pool.query<MemberWithPassword>(sql, [comparableEmail(email)])).rows[0];
  }

  async removeMember(accountId: string, id: string): Promise<boolean> {
    return this.#change(async (client) => {
      await lockAccount(client, accountId);
      const sql = 'DELETE FROM members WHERE account_id = $1 AND id = $2';
      return (await client.query(sql, [accountId, id])).rowCount === 1;
    });
  }

  async startSession(member: CheckedMember, session: NewSession): Promise<boolean> {
    return this.#change(
      async (client) => (await lockIfStill(client, member)) && insertSession(client, member.id, session),
    );
  }

  async changePassword(member: CheckedMember, passwordHash: string, session: NewSession): Promise<boolean> {
    return this.#change(async (client) => {
      if (!(await lockIfStill(client, member))) return false;
      await setPassword(client, member.id, passwordHash);
      return insertSession(client, member.id, session);
    });
  }

  async replacePasswordHash({ id, passwordHash: old }: CheckedMember, passwordHash: string): Promise<boolean> {
    const sql = 'UPDATE members SET password_hash = $1 WHERE id = $2 AND password_hash = $3';
    return (await this.#pool.query(sql, [passwordHash, id, old])).rowCount === 1;
  }

  async findSession(tokenHash: Uint8Array): Promise<Session | undefined> {
    const text = `SELECT ${MEMBER_COLUMNS}, sessions.created_at AS "startedAt", sessions.renewed_at AS "renewedAt",
                         sessions.expires_at AS "expiresAt"
                  FROM sessions
                  JOIN members ON members.id = sessions.member_id
                  JOIN accounts ON accounts.id = members.account_id
                  WHERE sessions.token_hash = $1`;
    // Read by every request of a signed-in browser, so it has a name.
    const [row] = (await this.#pool.query<SessionRow>({ name: 'find_session', text }, [tokenHash])).rows;
    if (row === undefined) return undefined;
    const { startedAt, renewedAt, expiresAt, ...member } = row;
    return { member, createdAt: startedAt, renewedAt, expiresAt };
  }

  async renewSession(tokenHash: Uint8Array, renewedAt: number, expiresAt: number): Promise<void> {
    const sql = 'UPDATE sessions SET renewed_at = $1, expires_at = $2 WHERE token_hash = $3';
    await this.#pool.query(sql, [renewedAt, expiresAt, tokenHash]);
  }

  async endSession(tokenHash: Uint8Array): Promise<void> {
    await deleteSession(this.#pool, tokenHash);
  }

  async createInvitation(invitation: NewInvitation, openMax: number): Promise<boolean> {
    const { id, tokenHash, accountId, kind, email, memberId, createdAt, expiresAt } = invitation;
    return this.#change(async (client) => {
      await lockAccount(client, accountId);
      await removeExpired(client, accountId, createdAt);
      if (email !== null) await withdraw(client, accountId, email);
      const open = 'SELECT count(*) AS n FROM invitations WHERE account_id = $1';
      const [count] = (await client.query<{ n: number }>(open, [accountId])).rows;
      if (count !== undefined && count.n >= openMax) return false;
      await client.query(
        `INSERT INTO invitations (id, token_hash, account_id, kind, email, member_id, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
        [id, tokenHash, accountId, kind, email, memberId, createdAt, expiresAt],
      );
      return true;
    });
  }

  async invitations(accountId: string, now: number): Promise<Invitation[]> {
    const sql = `${SELECT_OPEN_INVITATIONS} AND invitations.account_id = $2 AND invitations.kind = 'invitation'
                 ORDER BY invitations.created_at DESC, invitations.no DESC`;
    return (await this.#pool.query<Invitation>(sql, [now, accountId])).rows;
  }

  async findInvitation(tokenHash: Uint8Array, now: number): Promise<Invitation | undefined> {
    return findOpen(this.#pool, tokenHash, now);
  }

  async removeInvitation(accountId: string, id: string): Promise<boolean> {
    const sql = 'DELETE FROM invitations WHERE account_id = $1 AND id = $2';
    return (await this.#pool.query(sql, [accountId, id])).rowCount === 1;
  }

  async acceptInvitation(acceptance: Acceptance): Promise<Member | 'gone' | 'email taken'> {
    return this.#change(async (client) => {
      const found = await findOpen(client, acceptance.tokenHash, acceptance.at);
      if (found === undefined) return 'gone';
      // Whoever else accepts, this one or another first one, is done by the time that it is looked for again.
      await lockAccount(client, found.accountId);
      const invitation = await findOpen(client, acceptance.tokenHash, acceptance.at);
      if (invitation === undefined) return 'gone';
      const [removed] = (
        await client.query<{ memberId: string | null }>(
          'DELETE FROM invitations WHERE id = $1 RETURNING member_id AS "memberId"',
          [invitation.id],
        )
      ).rows;
      if (removed === undefined) return 'gone';
      const memberId = removed.memberId ?? acceptance.memberId;
      if (removed.memberId !== null) await setPassword(client, memberId, acceptance.passwordHash);
      else if (!(await insertMember(client, invitation, acceptance))) throw new EmailTaken();
      await insertSession(client, memberId, acceptance.session);
      const sql = `SELECT ${MEMBER_COLUMNS} ${FROM_MEMBERS} WHERE members.id = $1`;
      const [member] = (await client.query<Member>(sql, [memberId])).rows;
      if (member === undefined) throw new Error('a member vanished while joining');
      return member;
    }).catch((error: unknown) => {
      if (error instanceof EmailTaken) return 'email taken';
      throw error;
    });
  }

  async takeAttempt(
    subjects: readonly Uint8Array[],
    at: number,
    rule: (counts: readonly AttemptCount[]) => AttemptRuling,
  ): Promise<number> {
    try {
      await this.#change((client) => takeAttempt(client, subjects, at, rule));
      return 0;
    } catch (error) {
      if (error instanceof HasToWait) return error.waitMs;
      throw error;
    }
  }

  async forgiveAttempt(forgotten: Uint8Array, takenBack: readonly Uint8Array[]): Promise<void> {
    await this.#change((client) => forgiveAttempt(client, forgotten, takenBack));
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  async #change<T>(work: (client: PostgresClient) => Promise<T>): Promise<T> {
    try {
      return await this.#pool.inTransaction(work, CONFLICT_ATTEMPTS);
    } catch (error) {
      if (!(error instanceof StoreConflictError)) throw error;
      throw new StoreUnavailableError('members are being changed by too many at once', { cause: error });
    }
  }
}

/** Rolls back, so that the invitation stays. */
class EmailTaken extends Error {}

async function lockAccount(client: PostgresClient, accountId: string): Promise<void> {
  await client.query('SELECT 1 FROM accounts WHERE id = $1 FOR NO KEY UPDATE', [accountId]);
}

async function findOpen(connection: Queryable, tokenHash: Uint8Array, now: number): Promise<Invitation | undefined> {
  const sql = `${SELECT_OPEN_INVITATIONS} AND invitations.token_hash = $2`;
  return (await connection.query<Invitation>(sql, [now, tokenHash])).rows[0];
}

/** All of the account, which count against its limit; of others only those that nobody is at. */
async function removeExpired(client: PostgresClient, accountId: string, now: number): Promise<void> {
  await client.query('DELETE FROM invitations WHERE account_id = $1 AND expires_at <= $2', [accountId, now]);
  await client.query(
    `DELETE FROM invitations WHERE id IN (
       SELECT id FROM invitations WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)`,
    [now, REMOVED_MAX],
  );
}

async function withdraw(client: PostgresClient, accountId: string, email: string): Promise<void> {
  const sql = 'SELECT id, email FROM invitations WHERE account_id = $1 AND email IS NOT NULL';
  const { rows } = await client.query<{ id: string; email: string }>(sql, [accountId]);
  const same = rows.filter((row) => comparableEmail(row.email) === comparableEmail(email));
  await client.query('DELETE FROM invitations WHERE id = ANY ($1::text[])', [same.map(({ id }) => id)]);
}

/** False if another member has the e-mail. */
async function insertMember(
  client: PostgresClient,
  invitation: Invitation,
  { memberId, email, passwordHash, at }: Acceptance,
): Promise<boolean> {
  const own = invitation.email ?? email;
  const sql = `INSERT INTO members (id, account_id, email, email_lower, password_hash, created_at)
               VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (email_lower) DO NOTHING`;
  const values = [memberId, invitation.accountId, own, comparableEmail(own), passwordHash, at];
  return (await client.query(sql, values)).rowCount === 1;
}
