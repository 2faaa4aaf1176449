/**
 * Members, sessions, invitations and sign-in attempts: the `MemberStore` on SQLite and PostgreSQL. Every check-then-write
 * runs under row locks, taken in this order: account (invitations, joining and leaving), invitation, member, sessions.
 * Attempt counts and session renewals are frequent and not synced, so a power failure may lose the latest of them.
 * Obsolete rows are deleted by the next call of their kind, a bounded number at a time. The store owns the database that
 * it is given.
 */

import type { Kysely } from 'kysely';
import {
  type Acceptance,
  ATTEMPTS_KEPT_MS,
  type AttemptCount,
  type AttemptDecision,
  type CheckedMember,
  comparableEmail,
  type Invitation,
  type Member,
  type MemberStore,
  type MemberWithPassword,
  type NewInvitation,
  type NewSession,
  SESSIONS_PER_MEMBER_MAX,
  type Session,
} from '../../members.ts';
import type { AccountTables } from './account-tables.ts';
import type { SqlDatabase } from './database.ts';

type Tables = Kysely<AccountTables>;

/** More than a call adds, and few enough that the call after a flood does not pay for all of it. */
const REMOVED_MAX = 100;

const MEMBER_COLUMNS = [
  'members.id',
  'members.account_id as accountId',
  'accounts.name as accountName',
  'members.email',
  'members.created_at as createdAt',
  'members.last_signed_in_at as lastSignedInAt',
] as const;

/** Rolls back, so that nothing is left of an attempt that has to wait. */
class HasToWait extends Error {
  readonly waitMs: number;

  constructor(waitMs: number) {
    super('the attempt has to wait');
    this.waitMs = waitMs;
  }
}

export class SqlMemberStore implements MemberStore {
  readonly #database: SqlDatabase<AccountTables>;

  constructor(database: SqlDatabase<AccountTables>) {
    this.#database = database;
  }

  members(accountId: string): Promise<Member[]> {
    return selectMembers(this.#database.reading)
      .where('members.account_id', '=', accountId)
      .orderBy('members.created_at')
      .orderBy('members.no')
      .execute();
  }

  findMember(email: string): Promise<MemberWithPassword | undefined> {
    return selectMembers(this.#database.reading)
      .select('members.password_hash as passwordHash')
      .where('members.email_lower', '=', comparableEmail(email))
      .executeTakeFirst();
  }

  removeMember(accountId: string, id: string): Promise<boolean> {
    return this.#database.change(async (tables) => {
      await this.#lockAccount(tables, accountId);
      const remove = tables.deleteFrom('members').where('account_id', '=', accountId).where('id', '=', id);
      return (await remove.executeTakeFirstOrThrow()).numDeletedRows === 1n;
    });
  }

  startSession(member: CheckedMember, session: NewSession): Promise<boolean> {
    return this.#database.change(
      async (tables) => (await this.#isStill(tables, member)) && this.#insertSession(tables, member.id, session),
    );
  }

  changePassword(member: CheckedMember, passwordHash: string, session: NewSession): Promise<boolean> {
    return this.#database.change(async (tables) => {
      if (!(await this.#isStill(tables, member))) return false;
      await setPassword(tables, member.id, passwordHash);
      return this.#insertSession(tables, member.id, session);
    });
  }

  replacePasswordHash({ id, passwordHash: old }: CheckedMember, passwordHash: string): Promise<boolean> {
    return this.#database.change(async (tables) => {
      const update = tables
        .updateTable('members')
        .set({ password_hash: passwordHash })
        .where('id', '=', id)
        .where('password_hash', '=', old);
      return (await update.executeTakeFirstOrThrow()).numUpdatedRows === 1n;
    });
  }

  async findSession(tokenHash: Uint8Array): Promise<Session | undefined> {
    const row = await this.#database.reading
      .selectFrom('sessions')
      .innerJoin('members', 'members.id', 'sessions.member_id')
      .innerJoin('accounts', 'accounts.id', 'members.account_id')
      .select(MEMBER_COLUMNS)
      .select([
        'sessions.created_at as startedAt',
        'sessions.renewed_at as renewedAt',
        'sessions.expires_at as expiresAt',
      ])
      .where('sessions.token_hash', '=', tokenHash)
      .executeTakeFirst();
    if (row === undefined) return undefined;
    const { startedAt, renewedAt, expiresAt, ...member } = row;
    return { member, createdAt: startedAt, renewedAt, expiresAt };
  }

  async renewSession(tokenHash: Uint8Array, renewedAt: number, expiresAt: number): Promise<void> {
    await this.#database.change(
      (tables) =>
        tables
          .updateTable('sessions')
          .set({ renewed_at: renewedAt, expires_at: expiresAt })
          .where('token_hash', '=', tokenHash)
          .execute(),
      'unsynced',
    );
  }

  async endSession(tokenHash: Uint8Array): Promise<void> {
    await this.#database.change((tables) => deleteSession(tables, tokenHash));
  }

  createInvitation(invitation: NewInvitation, openMax: number): Promise<boolean> {
    const { id, tokenHash, accountId, kind, email, memberId, createdAt, expiresAt } = invitation;
    return this.#database.change(async (tables) => {
      await this.#lockAccount(tables, accountId);
      await this.#removeExpiredInvitations(tables, accountId, createdAt);
      if (email !== null) await withdrawInvitations(tables, accountId, email);
      const { n } = await tables
        .selectFrom('invitations')
        .select((from) => from.fn.countAll<number>().as('n'))
        .where('account_id', '=', accountId)
        .executeTakeFirstOrThrow();
      if (n >= openMax) return false;
      await tables
        .insertInto('invitations')
        .values({
          id,
          token_hash: tokenHash,
          account_id: accountId,
          kind,
          email,
          member_id: memberId,
          created_at: createdAt,
          expires_at: expiresAt,
        })
        .execute();
      return true;
    });
  }

  invitations(accountId: string, now: number): Promise<Invitation[]> {
    return selectOpenInvitations(this.#database.reading, now)
      .where('invitations.account_id', '=', accountId)
      .where('invitations.kind', '=', 'invitation')
      .orderBy('invitations.created_at', 'desc')
      .orderBy('invitations.no', 'desc')
      .execute();
  }

  findInvitation(tokenHash: Uint8Array, now: number): Promise<Invitation | undefined> {
    return findOpenInvitation(this.#database.reading, tokenHash, now);
  }

  removeInvitation(accountId: string, id: string): Promise<boolean> {
    return this.#database.change(async (tables) => {
      const remove = tables.deleteFrom('invitations').where('account_id', '=', accountId).where('id', '=', id);
      return (await remove.executeTakeFirstOrThrow()).numDeletedRows === 1n;
    });
  }

  acceptInvitation(acceptance: Acceptance): Promise<Member | 'gone' | 'email taken'> {
    return this.#database.change((tables) => this.#accept(tables, acceptance));
  }

  async takeAttempt(
    subjects: readonly Uint8Array[],
    at: number,
    rule: (counts: readonly AttemptCount[]) => AttemptDecision,
  ): Promise<number> {
    try {
      await this.#database.change((tables) => this.#countAttempt(tables, subjects, at, rule), 'unsynced');
      return 0;
    } catch (error) {
      if (error instanceof HasToWait) return error.waitMs;
      throw error;
    }
  }

  async forgiveAttempt(forgotten: Uint8Array, takenBack: readonly Uint8Array[]): Promise<void> {
    await this.#database.change(async (tables) => {
      for (const subject of inOrder([forgotten, ...takenBack])) {
        const isForgotten = Buffer.compare(subject, forgotten) === 0;
        const update = tables
          .updateTable('sign_in_attempts')
          .set((row) => ({ failures: isForgotten ? 0 : row('failures', '-', 1) }))
          .where('subject', '=', subject);
        await (isForgotten ? update : update.where('failures', '>', 0)).execute();
      }
      await tables.deleteFrom('sign_in_attempts').where('subject', '=', forgotten).execute();
    }, 'unsynced');
  }

  close(): Promise<void> {
    return this.#database.close();
  }

  async #accept(tables: Tables, acceptance: Acceptance): Promise<Member | 'gone' | 'email taken'> {
    const { tokenHash, at, passwordHash, session } = acceptance;
    const found = await findOpenInvitation(tables, tokenHash, at);
    if (found === undefined) return 'gone';
    // By the time it is read again, another call that accepts this invitation, or another first one, has finished.
    await this.#lockAccount(tables, found.accountId);
    const invitation = await findOpenInvitation(tables, tokenHash, at);
    if (invitation === undefined) return 'gone';
    const ofInvitation = tables.selectFrom('invitations').select('member_id').where('id', '=', invitation.id);
    const locked = await this.#database.locks.lock(ofInvitation).executeTakeFirst();
    if (locked === undefined) return 'gone';
    const memberId = locked.member_id ?? acceptance.memberId;
    if (locked.member_id !== null) await setPassword(tables, memberId, passwordHash);
    else if (!(await insertMember(tables, invitation, acceptance))) return 'email taken';
    await tables.deleteFrom('invitations').where('id', '=', invitation.id).execute();
    await this.#insertSession(tables, memberId, session);
    return selectMembers(tables).where('members.id', '=', memberId).executeTakeFirstOrThrow();
  }

  /**
   * Locks each count from read to write, inserting it if it is missing, so that concurrent attempts on several servers
   * are counted one after the other.
   */
  async #countAttempt(
    tables: Tables,
    subjects: readonly Uint8Array[],
    at: number,
    rule: (counts: readonly AttemptCount[]) => AttemptDecision,
  ): Promise<void> {
    const counts = new Map<string, AttemptCount>();
    for (const subject of inOrder(subjects)) {
      const count = await tables
        .insertInto('sign_in_attempts')
        .values({ subject, failures: 0, last_at: 0 })
        // An update that changes nothing locks the row, and sees its latest version.
        .onConflict((conflict) =>
          conflict.column('subject').doUpdateSet((row) => ({ failures: row.ref('sign_in_attempts.failures') })),
        )
        .returning(['failures', 'last_at as lastAt'])
        .executeTakeFirstOrThrow();
      counts.set(nameOf(subject), count);
    }
    const { waitMs, failures } = rule(
      subjects.map((subject) => counts.get(nameOf(subject)) ?? { failures: 0, lastAt: 0 }),
    );
    if (waitMs > 0) throw new HasToWait(waitMs);
    for (const [n, subject] of subjects.entries()) {
      const counted = { failures: failures[n] ?? 1, last_at: at };
      await tables.updateTable('sign_in_attempts').set(counted).where('subject', '=', subject).execute();
    }
    const old = tables
      .selectFrom('sign_in_attempts')
      .select('subject')
      .where('last_at', '<', at - ATTEMPTS_KEPT_MS)
      .orderBy('last_at')
      .limit(REMOVED_MAX);
    await tables.deleteFrom('sign_in_attempts').where('subject', 'in', this.#database.locks.skipLocked(old)).execute();
  }

  async #lockAccount(tables: Tables, accountId: string): Promise<void> {
    await this.#database.locks.lock(tables.selectFrom('accounts').select('id').where('id', '=', accountId)).execute();
  }

  /** Whether the member is there and has that password, and then stays so until the transaction ends. */
  async #isStill(tables: Tables, { id, passwordHash }: CheckedMember): Promise<boolean> {
    const member = tables
      .selectFrom('members')
      .select('id')
      .where('id', '=', id)
      .where('password_hash', '=', passwordHash);
    return (await this.#database.locks.lock(member).executeTakeFirst()) !== undefined;
  }

  /** False if the member is gone. */
  async #insertSession(tables: Tables, memberId: string, session: NewSession): Promise<boolean> {
    const { tokenHash, createdAt, expiresAt, replaces } = session;
    const signedIn = tables.updateTable('members').set({ last_signed_in_at: createdAt }).where('id', '=', memberId);
    if ((await signedIn.executeTakeFirstOrThrow()).numUpdatedRows === 0n) return false;
    if (replaces !== null) await deleteSession(tables, replaces);
    const expired = tables
      .selectFrom('sessions')
      .select('token_hash')
      .where('expires_at', '<=', createdAt)
      .limit(REMOVED_MAX);
    await tables.deleteFrom('sessions').where('token_hash', 'in', this.#database.locks.skipLocked(expired)).execute();
    const leastUsed = tables
      .selectFrom('sessions')
      .select('token_hash')
      .where('member_id', '=', memberId)
      .orderBy('renewed_at', 'desc')
      .limit(REMOVED_MAX)
      .offset(SESSIONS_PER_MEMBER_MAX - 1);
    await tables.deleteFrom('sessions').where('token_hash', 'in', leastUsed).execute();
    await tables
      .insertInto('sessions')
      .values({
        token_hash: tokenHash,
        member_id: memberId,
        created_at: createdAt,
        renewed_at: createdAt,
        expires_at: expiresAt,
      })
      .execute();
    return true;
  }

  /** All of the account, which count against its limit; of others only those that no other transaction works on. */
  async #removeExpiredInvitations(tables: Tables, accountId: string, now: number): Promise<void> {
    await tables.deleteFrom('invitations').where('account_id', '=', accountId).where('expires_at', '<=', now).execute();
    const expired = tables.selectFrom('invitations').select('id').where('expires_at', '<=', now).limit(REMOVED_MAX);
    await tables.deleteFrom('invitations').where('id', 'in', this.#database.locks.skipLocked(expired)).execute();
  }
}

function selectMembers(tables: Tables) {
  return tables.selectFrom('members').innerJoin('accounts', 'accounts.id', 'members.account_id').select(MEMBER_COLUMNS);
}

/** Not used, not expired, and a first one only while the account has no member. */
function selectOpenInvitations(tables: Tables, now: number) {
  return tables
    .selectFrom('invitations')
    .innerJoin('accounts', 'accounts.id', 'invitations.account_id')
    .select([
      'invitations.id',
      'invitations.account_id as accountId',
      'accounts.name as accountName',
      'invitations.kind',
      'invitations.email',
      'invitations.created_at as createdAt',
      'invitations.expires_at as expiresAt',
    ])
    .where('invitations.expires_at', '>', now)
    .where((where) => {
      const members = where
        .selectFrom('members')
        .select('members.id')
        .whereRef('members.account_id', '=', 'invitations.account_id');
      return where.or([where('invitations.kind', '<>', 'first'), where.not(where.exists(members))]);
    });
}

function findOpenInvitation(tables: Tables, tokenHash: Uint8Array, now: number): Promise<Invitation | undefined> {
  return selectOpenInvitations(tables, now).where('invitations.token_hash', '=', tokenHash).executeTakeFirst();
}

async function withdrawInvitations(tables: Tables, accountId: string, email: string): Promise<void> {
  const rows = await tables
    .selectFrom('invitations')
    .select(['id', 'email'])
    .where('account_id', '=', accountId)
    .execute();
  const isSame = (its: string | null) => its !== null && comparableEmail(its) === comparableEmail(email);
  for (const row of rows) {
    if (isSame(row.email)) await tables.deleteFrom('invitations').where('id', '=', row.id).execute();
  }
}

/** False if another member has the e-mail. */
async function insertMember(tables: Tables, invitation: Invitation, acceptance: Acceptance): Promise<boolean> {
  const email = invitation.email ?? acceptance.email;
  const insert = tables
    .insertInto('members')
    .values({
      id: acceptance.memberId,
      account_id: invitation.accountId,
      email,
      email_lower: comparableEmail(email),
      password_hash: acceptance.passwordHash,
      created_at: acceptance.at,
    })
    .onConflict((conflict) => conflict.column('email_lower').doNothing());
  return (await insert.executeTakeFirstOrThrow()).numInsertedOrUpdatedRows === 1n;
}

/** Ends every session: one of them may belong to a person who knew the old password. */
async function setPassword(tables: Tables, memberId: string, passwordHash: string): Promise<void> {
  await tables.updateTable('members').set({ password_hash: passwordHash }).where('id', '=', memberId).execute();
  await tables.deleteFrom('sessions').where('member_id', '=', memberId).execute();
}

async function deleteSession(tables: Tables, tokenHash: Uint8Array): Promise<void> {
  await tables.deleteFrom('sessions').where('token_hash', '=', tokenHash).execute();
}

/** Each once, in the one order in which rows are locked. */
function inOrder(subjects: readonly Uint8Array[]): Uint8Array[] {
  const byName = new Map(subjects.map((subject) => [nameOf(subject), subject]));
  return [...byName].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, subject]) => subject);
}

function nameOf(subject: Uint8Array): string {
  return Buffer.from(subject).toString('hex');
}
