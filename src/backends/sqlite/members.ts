/**
 * Members, sessions, invitations and attempts in the SQLite file of the keys, the embedded `MemberStore`.
 *
 * Every call is one statement or one short write transaction, finished before it returns, so several edges and the
 * command line work on the file at once and each sees what the others committed. What matters is synced before it is
 * answered; counts of attempts and renewals of sessions are not, since they are frequent, and a power loss may take the
 * last of them. Locks are waited for without stopping the thread. Failures of SQLite become `StoreUnavailableError`s.
 */

import type { DatabaseSync, SQLOutputValue, StatementSync } from 'node:sqlite';
import {
  type Acceptance,
  type AttemptCount,
  type AttemptRuling,
  type CheckedMember,
  comparableEmail,
  type Invitation,
  type InvitationKind,
  type Member,
  type MemberStore,
  type MemberWithPassword,
  type NewInvitation,
  type NewSession,
  SESSIONS_PER_MEMBER_MAX,
  type Session,
} from '../../members.ts';
import { StoreUnavailableError } from '../../store-writer.ts';
import { openKeysDatabase } from './keys-schema.ts';
import { forgiveAttempt, takeAttempt } from './member-attempts.ts';
import { PatientConnection } from './patient-connection.ts';

const SELECT_MEMBERS = `
  SELECT members.*, accounts.name AS account_name
  FROM members JOIN accounts ON accounts.id = members.account_id`;

const SELECT_SESSION = `
  SELECT members.*, accounts.name AS account_name, sessions.created_at AS started_at, sessions.renewed_at,
         sessions.expires_at
  FROM sessions
  JOIN members ON members.id = sessions.member_id
  JOIN accounts ON accounts.id = members.account_id
  WHERE sessions.token_hash = ?`;

const SELECT_OPEN_INVITATIONS = `
  SELECT invitations.*, accounts.name AS account_name
  FROM invitations JOIN accounts ON accounts.id = invitations.account_id
  WHERE invitations.expires_at > :now
    AND (invitations.kind <> 'first'
         OR NOT EXISTS (SELECT 1 FROM members WHERE members.account_id = invitations.account_id))`;

const SQLITE_CONSTRAINT = 19;

export function openSqliteMemberStore(file: string): MemberStore {
  return new SqliteMemberStore(openKeysDatabase(file));
}

class SqliteMemberStore implements MemberStore {
  readonly #connection: PatientConnection;
  readonly #database: DatabaseSync;
  /** Read by every request of a signed-in browser, so it is compiled once. */
  readonly #selectSession: StatementSync;

  constructor(database: DatabaseSync) {
    this.#connection = new PatientConnection(database);
    this.#database = database;
    this.#selectSession = database.prepare(SELECT_SESSION);
  }

  async members(accountId: string): Promise<Member[]> {
    return this.#read(() => {
      const sql = `${SELECT_MEMBERS} WHERE members.account_id = ? ORDER BY members.created_at, members.rowid`;
      return this.#database.prepare(sql).all(accountId).map(toMember);
    });
  }

  async findMember(email: string): Promise<MemberWithPassword | undefined> {
    return this.#read(() => {
      const sql = `${SELECT_MEMBERS} WHERE members.email_lower = ?`;
      const row = this.#database.prepare(sql).get(comparableEmail(email));
      return row === undefined ? undefined : { ...toMember(row), passwordHash: row.password_hash as string };
    });
  }

  async removeMember(accountId: string, id: string): Promise<boolean> {
    return this.#write(() => {
      const sql = 'DELETE FROM members WHERE account_id = ? AND id = ?';
      return this.#database.prepare(sql).run(accountId, id).changes === 1;
    });
  }

  async startSession(member: CheckedMember, session: NewSession): Promise<boolean> {
    return this.#write(() => this.#isStill(member) && this.#insertSession(member.id, session));
  }

  async changePassword(member: CheckedMember, passwordHash: string, session: NewSession): Promise<boolean> {
    return this.#write(() => {
      if (!this.#isStill(member)) return false;
      this.#setPassword(member.id, passwordHash);
      return this.#insertSession(member.id, session);
    });
  }

  async replacePasswordHash({ id, passwordHash: old }: CheckedMember, passwordHash: string): Promise<boolean> {
    const sql = 'UPDATE members SET password_hash = ? WHERE id = ? AND password_hash = ?';
    return this.#write(() => this.#database.prepare(sql).run(passwordHash, id, old).changes === 1);
  }

  async findSession(tokenHash: Uint8Array): Promise<Session | undefined> {
    return this.#read(() => {
      const row = this.#selectSession.get(tokenHash);
      if (row === undefined) return undefined;
      return {
        member: toMember(row),
        createdAt: row.started_at as number,
        renewedAt: row.renewed_at as number,
        expiresAt: row.expires_at as number,
      };
    });
  }

  async renewSession(tokenHash: Uint8Array, renewedAt: number, expiresAt: number): Promise<void> {
    await this.#writeUnsynced(() => {
      const sql = 'UPDATE sessions SET renewed_at = ?, expires_at = ? WHERE token_hash = ?';
      this.#database.prepare(sql).run(renewedAt, expiresAt, tokenHash);
    });
  }

  async endSession(tokenHash: Uint8Array): Promise<void> {
    await this.#write(() => this.#deleteSession(tokenHash));
  }

  async createInvitation(invitation: NewInvitation, openMax: number): Promise<boolean> {
    const { id, tokenHash, accountId, kind, email, memberId, createdAt, expiresAt } = invitation;
    return this.#write(() => {
      this.#database.prepare('DELETE FROM invitations WHERE expires_at <= ?').run(createdAt);
      if (email !== null) {
        const others = this.#database.prepare('SELECT id, email FROM invitations WHERE account_id = ?').all(accountId);
        const isSame = (its: unknown) => typeof its === 'string' && comparableEmail(its) === comparableEmail(email);
        const remove = this.#database.prepare('DELETE FROM invitations WHERE id = ?');
        for (const other of others) if (isSame(other.email)) remove.run(other.id as string);
      }
      const count = this.#database.prepare('SELECT count(*) AS n FROM invitations WHERE account_id = ?').get(accountId);
      if ((count?.n as number) >= openMax) return false;
      this.#database
        .prepare(
          `INSERT INTO invitations (id, token_hash, account_id, kind, email, member_id, created_at, expires_at)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
        )
        .run(id, tokenHash, accountId, kind, email, memberId, createdAt, expiresAt);
      return true;
    });
  }

  async invitations(accountId: string, now: number): Promise<Invitation[]> {
    return this.#read(() => {
      const sql = `${SELECT_OPEN_INVITATIONS} AND invitations.account_id = :accountId AND invitations.kind = 'invitation'
                   ORDER BY invitations.created_at DESC, invitations.rowid DESC`;
      return this.#database.prepare(sql).all({ now, accountId }).map(toInvitation);
    });
  }

  async findInvitation(tokenHash: Uint8Array, now: number): Promise<Invitation | undefined> {
    return this.#read(() => {
      const row = this.#selectInvitation(tokenHash, now);
      return row === undefined ? undefined : toInvitation(row);
    });
  }

  async removeInvitation(accountId: string, id: string): Promise<boolean> {
    return this.#write(() => {
      const sql = 'DELETE FROM invitations WHERE account_id = ? AND id = ?';
      return this.#database.prepare(sql).run(accountId, id).changes === 1;
    });
  }

  async acceptInvitation(acceptance: Acceptance): Promise<Member | 'gone' | 'email taken'> {
    return this.#write(() => {
      const row = this.#selectInvitation(acceptance.tokenHash, acceptance.at);
      if (row === undefined) return 'gone';
      const invitation = toInvitation(row);
      const isReset = invitation.kind === 'reset';
      const memberId = isReset ? (row.member_id as string) : acceptance.memberId;
      if (isReset) this.#setPassword(memberId, acceptance.passwordHash);
      else if (!this.#insertMember(memberId, invitation, acceptance)) return 'email taken';
      this.#database.prepare('DELETE FROM invitations WHERE id = ?').run(invitation.id);
      this.#insertSession(memberId, acceptance.session);
      const member = this.#database.prepare(`${SELECT_MEMBERS} WHERE members.id = ?`).get(memberId);
      if (member === undefined) throw new Error('a member vanished while joining');
      return toMember(member);
    });
  }

  async takeAttempt(
    subjects: readonly Uint8Array[],
    at: number,
    rule: (counts: readonly AttemptCount[]) => AttemptRuling,
  ): Promise<number> {
    return this.#writeUnsynced(() => takeAttempt(this.#database, subjects, at, rule));
  }

  async forgiveAttempt(forgotten: Uint8Array, takenBack: readonly Uint8Array[]): Promise<void> {
    await this.#writeUnsynced(() => forgiveAttempt(this.#database, forgotten, takenBack));
  }

  async close(): Promise<void> {
    this.#connection.close();
  }

  #selectInvitation(tokenHash: Uint8Array, now: number): Row | undefined {
    const sql = `${SELECT_OPEN_INVITATIONS} AND invitations.token_hash = :tokenHash`;
    return this.#database.prepare(sql).get({ now, tokenHash });
  }

  #insertMember(memberId: string, invitation: Invitation, { email, passwordHash, at }: Acceptance): boolean {
    const own = invitation.email ?? email;
    const sql = `INSERT INTO members (id, account_id, email, email_lower, password_hash, created_at)
                 VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (email_lower) DO NOTHING`;
    const insert = this.#database.prepare(sql);
    return insert.run(memberId, invitation.accountId, own, comparableEmail(own), passwordHash, at).changes === 1;
  }

  #isStill({ id, passwordHash }: CheckedMember): boolean {
    const sql = 'SELECT 1 FROM members WHERE id = ? AND password_hash = ?';
    return this.#database.prepare(sql).get(id, passwordHash) !== undefined;
  }

  /** Whoever knew the old one is out: every session ends. */
  #setPassword(memberId: string, passwordHash: string): void {
    this.#database.prepare('UPDATE members SET password_hash = ? WHERE id = ?').run(passwordHash, memberId);
    this.#database.prepare('DELETE FROM sessions WHERE member_id = ?').run(memberId);
  }

  #insertSession(memberId: string, { tokenHash, createdAt, expiresAt, replaces }: NewSession): boolean {
    if (replaces !== null) this.#deleteSession(replaces);
    const signedIn = this.#database.prepare('UPDATE members SET last_signed_in_at = ? WHERE id = ?');
    if (signedIn.run(createdAt, memberId).changes === 0) return false;
    this.#database.prepare('DELETE FROM sessions WHERE expires_at <= ?').run(createdAt);
    this.#database
      .prepare(
        `DELETE FROM sessions WHERE token_hash IN (
           SELECT token_hash FROM sessions WHERE member_id = ? ORDER BY renewed_at DESC LIMIT -1 OFFSET ?)`,
      )
      .run(memberId, SESSIONS_PER_MEMBER_MAX - 1);
    this.#database
      .prepare(
        'INSERT INTO sessions (token_hash, member_id, created_at, renewed_at, expires_at) VALUES (?, ?, ?, ?, ?)',
      )
      .run(tokenHash, memberId, createdAt, createdAt, expiresAt);
    return true;
  }

  #deleteSession(tokenHash: Uint8Array): void {
    this.#database.prepare('DELETE FROM sessions WHERE token_hash = ?').run(tokenHash);
  }

  #read<T>(work: () => T): Promise<T> {
    return inWords(this.#connection.read(work));
  }

  #write<T>(work: () => T): Promise<T> {
    return inWords(this.#connection.write(work));
  }

  #writeUnsynced<T>(work: () => T): Promise<T> {
    return inWords(this.#connection.writeUnsynced(work));
  }
}

async function inWords<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    // Rows that do not fit together are a bug of ours, and told as one.
    const code = error instanceof Error && 'errcode' in error ? Number(error.errcode) & 0xff : undefined;
    const isClosed = error instanceof Error && 'code' in error && error.code === 'ERR_INVALID_STATE';
    if (!isClosed && (code === undefined || code === SQLITE_CONSTRAINT)) throw error;
    throw new StoreUnavailableError('members cannot be read or written', { cause: error });
  }
}

type Row = Record<string, SQLOutputValue>;

function toMember(row: Row): Member {
  return {
    id: row.id as string,
    accountId: row.account_id as string,
    accountName: row.account_name as string,
    email: row.email as string,
    createdAt: row.created_at as number,
    lastSignedInAt: row.last_signed_in_at as number | null,
  };
}

function toInvitation(row: Row): Invitation {
  return {
    id: row.id as string,
    accountId: row.account_id as string,
    accountName: row.account_name as string,
    kind: row.kind as InvitationKind,
    email: row.email as string | null,
    createdAt: row.created_at as number,
    expiresAt: row.expires_at as number,
  };
}
