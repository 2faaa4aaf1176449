/**
 * Members, sessions, invitations and sign-in attempts: the `MemberStore` on SQLite and PostgreSQL. Every check-then-write
 * runs under row locks, taken in this order: account (invitations, joining and leaving), invitation, member, sessions.
 * Attempt counts and session renewals are frequent and not synced, so a power failure may lose the latest of them.
 * Obsolete rows are deleted by the next call of their kind, a bounded number at a time.
 */

import type { Compilable, Kysely } from 'kysely';
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
import { changedBy, type RowLocks, rowsOf, type Steps } from './steps.ts';

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
  readonly #database: SqlDatabase;

  constructor(database: SqlDatabase) {
    this.#database = database;
  }

  members(accountId: string): Promise<Member[]> {
    return this.#database.read((tables) =>
      rowsOf(
        selectMembers(tables)
          .where('members.account_id', '=', accountId)
          .orderBy('members.created_at')
          .orderBy('members.no'),
      ),
    );
  }

  findMember(email: string): Promise<MemberWithPassword | undefined> {
    return this.#database.read((tables) =>
      firstOf(
        selectMembers(tables)
          .select('members.password_hash as passwordHash')
          .where('members.email_lower', '=', comparableEmail(email)),
      ),
    );
  }

  removeMember(accountId: string, id: string): Promise<boolean> {
    return this.#database.change(function* (tables, locks) {
      yield* lockAccount(tables, locks, accountId);
      const remove = tables.deleteFrom('members').where('account_id', '=', accountId).where('id', '=', id);
      return (yield* changedBy(remove)) === 1;
    });
  }

  startSession(member: CheckedMember, session: NewSession): Promise<boolean> {
    return this.#database.change(function* (tables, locks) {
      return (yield* isStill(tables, locks, member)) && (yield* insertSession(tables, locks, member.id, session));
    });
  }

  changePassword(member: CheckedMember, passwordHash: string, session: NewSession): Promise<boolean> {
    return this.#database.change(function* (tables, locks) {
      if (!(yield* isStill(tables, locks, member))) return false;
      yield* setPassword(tables, member.id, passwordHash);
      return yield* insertSession(tables, locks, member.id, session);
    });
  }

  replacePasswordHash({ id, passwordHash: old }: CheckedMember, passwordHash: string): Promise<boolean> {
    return this.#database.change(function* (tables) {
      const update = tables
        .updateTable('members')
        .set({ password_hash: passwordHash })
        .where('id', '=', id)
        .where('password_hash', '=', old);
      return (yield* changedBy(update)) === 1;
    });
  }

  findSession(tokenHash: Uint8Array): Promise<Session | undefined> {
    return this.#database.read(function* (tables) {
      const sessions = tables
        .selectFrom('sessions')
        .innerJoin('members', 'members.id', 'sessions.member_id')
        .innerJoin('accounts', 'accounts.id', 'members.account_id')
        .select(MEMBER_COLUMNS)
        .select([
          'sessions.created_at as startedAt',
          'sessions.renewed_at as renewedAt',
          'sessions.expires_at as expiresAt',
        ])
        .where('sessions.token_hash', '=', tokenHash);
      const row = yield* firstOf(sessions);
      if (row === undefined) return undefined;
      const { startedAt, renewedAt, expiresAt, ...member } = row;
      return { member, createdAt: startedAt, renewedAt, expiresAt };
    });
  }

  async renewSession(tokenHash: Uint8Array, renewedAt: number, expiresAt: number): Promise<void> {
    const values = { renewed_at: renewedAt, expires_at: expiresAt };
    await this.#database.change(
      (tables) => changedBy(tables.updateTable('sessions').set(values).where('token_hash', '=', tokenHash)),
      'unsynced',
    );
  }

  async endSession(tokenHash: Uint8Array): Promise<void> {
    await this.#database.change((tables) => deleteSession(tables, tokenHash));
  }

  createInvitation(invitation: NewInvitation, openMax: number): Promise<boolean> {
    const { id, tokenHash, accountId, kind, email, memberId, createdAt, expiresAt } = invitation;
    return this.#database.change(function* (tables, locks) {
      yield* lockAccount(tables, locks, accountId);
      yield* removeExpiredInvitations(tables, locks, accountId, createdAt);
      if (email !== null) yield* withdrawInvitations(tables, accountId, email);
      const open = yield* rowsOf(tables.selectFrom('invitations').select('id').where('account_id', '=', accountId));
      if (open.length >= openMax) return false;
      const row = {
        id,
        token_hash: tokenHash,
        account_id: accountId,
        kind,
        email,
        member_id: memberId,
        created_at: createdAt,
        expires_at: expiresAt,
      };
      yield* changedBy(tables.insertInto('invitations').values(row));
      return true;
    });
  }

  invitations(accountId: string, now: number): Promise<Invitation[]> {
    return this.#database.read((tables) =>
      rowsOf(
        selectOpenInvitations(tables, now)
          .where('invitations.account_id', '=', accountId)
          .where('invitations.kind', '=', 'invitation')
          .orderBy('invitations.created_at', 'desc')
          .orderBy('invitations.no', 'desc'),
      ),
    );
  }

  findInvitation(tokenHash: Uint8Array, now: number): Promise<Invitation | undefined> {
    return this.#database.read((tables) => findOpenInvitation(tables, tokenHash, now));
  }

  removeInvitation(accountId: string, id: string): Promise<boolean> {
    return this.#database.change(function* (tables) {
      const remove = tables.deleteFrom('invitations').where('account_id', '=', accountId).where('id', '=', id);
      return (yield* changedBy(remove)) === 1;
    });
  }

  acceptInvitation(acceptance: Acceptance): Promise<Member | 'gone' | 'email taken'> {
    return this.#database.change((tables, locks) => accept(tables, locks, acceptance));
  }

  async takeAttempt(
    subjects: readonly Uint8Array[],
    at: number,
    rule: (counts: readonly AttemptCount[]) => AttemptDecision,
  ): Promise<number> {
    try {
      await this.#database.change((tables, locks) => countAttempt(tables, locks, subjects, at, rule), 'unsynced');
      return 0;
    } catch (error) {
      if (error instanceof HasToWait) return error.waitMs;
      throw error;
    }
  }

  async forgiveAttempt(forgotten: Uint8Array, takenBack: readonly Uint8Array[]): Promise<void> {
    await this.#database.change(function* (tables) {
      for (const subject of inOrder([forgotten, ...takenBack])) {
        const isForgotten = Buffer.compare(subject, forgotten) === 0;
        const update = tables
          .updateTable('sign_in_attempts')
          .set((row) => ({ failures: isForgotten ? 0 : row('failures', '-', 1) }))
          .where('subject', '=', subject);
        yield* changedBy(isForgotten ? update : update.where('failures', '>', 0));
      }
      yield* changedBy(tables.deleteFrom('sign_in_attempts').where('subject', '=', forgotten));
    }, 'unsynced');
  }
}

function* firstOf<Row>(query: Compilable<Row>): Steps<Row | undefined> {
  return (yield* rowsOf(query))[0];
}

function* accept(tables: Tables, locks: RowLocks, acceptance: Acceptance): Steps<Member | 'gone' | 'email taken'> {
  const { tokenHash, at, passwordHash, session } = acceptance;
  const found = yield* findOpenInvitation(tables, tokenHash, at);
  if (found === undefined) return 'gone';
  // By the time it is read again, another call that accepts this invitation, or another first one, has finished.
  yield* lockAccount(tables, locks, found.accountId);
  const invitation = yield* findOpenInvitation(tables, tokenHash, at);
  if (invitation === undefined) return 'gone';
  const ofInvitation = tables.selectFrom('invitations').select('member_id').where('id', '=', invitation.id);
  const locked = yield* firstOf(locks.lock(ofInvitation));
  if (locked === undefined) return 'gone';
  const memberId = locked.member_id ?? acceptance.memberId;
  if (locked.member_id !== null) yield* setPassword(tables, memberId, passwordHash);
  else if (!(yield* insertMember(tables, invitation, acceptance))) return 'email taken';
  yield* changedBy(tables.deleteFrom('invitations').where('id', '=', invitation.id));
  yield* insertSession(tables, locks, memberId, session);
  return (yield* firstOf(selectMembers(tables).where('members.id', '=', memberId))) as Member;
}

/**
 * Locks each count from read to write, inserting it if it is missing, so that concurrent attempts on several servers
 * are counted one after the other.
 */
function* countAttempt(
  tables: Tables,
  locks: RowLocks,
  subjects: readonly Uint8Array[],
  at: number,
  rule: (counts: readonly AttemptCount[]) => AttemptDecision,
): Steps<void> {
  const counts = new Map<string, AttemptCount>();
  for (const subject of inOrder(subjects)) {
    const count = tables
      .insertInto('sign_in_attempts')
      .values({ subject, failures: 0, last_at: 0 })
      // An update that changes nothing locks the row, and sees its latest version.
      .onConflict((conflict) =>
        conflict.column('subject').doUpdateSet((row) => ({ failures: row.ref('sign_in_attempts.failures') })),
      )
      .returning(['failures', 'last_at as lastAt']);
    counts.set(nameOf(subject), (yield* firstOf(count)) as AttemptCount);
  }
  const { waitMs, failures } = rule(
    subjects.map((subject) => counts.get(nameOf(subject)) ?? { failures: 0, lastAt: 0 }),
  );
  if (waitMs > 0) throw new HasToWait(waitMs);
  for (const [n, subject] of subjects.entries()) {
    const counted = { failures: failures[n] ?? 1, last_at: at };
    yield* changedBy(tables.updateTable('sign_in_attempts').set(counted).where('subject', '=', subject));
  }
  const old = tables
    .selectFrom('sign_in_attempts')
    .select('subject')
    .where('last_at', '<', at - ATTEMPTS_KEPT_MS)
    .orderBy('last_at')
    .limit(REMOVED_MAX);
  yield* changedBy(tables.deleteFrom('sign_in_attempts').where('subject', 'in', locks.skipLocked(old)));
}

function* lockAccount(tables: Tables, locks: RowLocks, accountId: string): Steps<void> {
  yield* rowsOf(locks.lock(tables.selectFrom('accounts').select('id').where('id', '=', accountId)));
}

/** Whether the member is there and has that password, and then stays so until the transaction ends. */
function* isStill(tables: Tables, locks: RowLocks, { id, passwordHash }: CheckedMember): Steps<boolean> {
  const member = tables
    .selectFrom('members')
    .select('id')
    .where('id', '=', id)
    .where('password_hash', '=', passwordHash);
  return (yield* rowsOf(locks.lock(member))).length > 0;
}

/** False if the member is gone. */
function* insertSession(tables: Tables, locks: RowLocks, memberId: string, session: NewSession): Steps<boolean> {
  const { tokenHash, createdAt, expiresAt, replaces } = session;
  const signedIn = tables.updateTable('members').set({ last_signed_in_at: createdAt }).where('id', '=', memberId);
  if ((yield* changedBy(signedIn)) === 0) return false;
  if (replaces !== null) yield* deleteSession(tables, replaces);
  const expired = tables
    .selectFrom('sessions')
    .select('token_hash')
    .where('expires_at', '<=', createdAt)
    .limit(REMOVED_MAX);
  yield* changedBy(tables.deleteFrom('sessions').where('token_hash', 'in', locks.skipLocked(expired)));
  const leastUsed = tables
    .selectFrom('sessions')
    .select('token_hash')
    .where('member_id', '=', memberId)
    .orderBy('renewed_at', 'desc')
    .limit(REMOVED_MAX)
    .offset(SESSIONS_PER_MEMBER_MAX - 1);
  yield* changedBy(tables.deleteFrom('sessions').where('token_hash', 'in', leastUsed));
  const row = {
    token_hash: tokenHash,
    member_id: memberId,
    created_at: createdAt,
    renewed_at: createdAt,
    expires_at: expiresAt,
  };
  yield* changedBy(tables.insertInto('sessions').values(row));
  return true;
}

/** All of the account, which count against its limit; of others only those that no other transaction works on. */
function* removeExpiredInvitations(tables: Tables, locks: RowLocks, accountId: string, now: number): Steps<void> {
  const own = tables.deleteFrom('invitations').where('account_id', '=', accountId).where('expires_at', '<=', now);
  yield* changedBy(own);
  const expired = tables.selectFrom('invitations').select('id').where('expires_at', '<=', now).limit(REMOVED_MAX);
  yield* changedBy(tables.deleteFrom('invitations').where('id', 'in', locks.skipLocked(expired)));
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

function findOpenInvitation(tables: Tables, tokenHash: Uint8Array, now: number): Steps<Invitation | undefined> {
  return firstOf(selectOpenInvitations(tables, now).where('invitations.token_hash', '=', tokenHash));
}

function* withdrawInvitations(tables: Tables, accountId: string, email: string): Steps<void> {
  const all = tables.selectFrom('invitations').select(['id', 'email']).where('account_id', '=', accountId);
  const isSame = (its: string | null) => its !== null && comparableEmail(its) === comparableEmail(email);
  for (const row of yield* rowsOf(all)) {
    if (isSame(row.email)) yield* changedBy(tables.deleteFrom('invitations').where('id', '=', row.id));
  }
}

/** False if another member has the e-mail. */
function* insertMember(tables: Tables, invitation: Invitation, acceptance: Acceptance): Steps<boolean> {
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
  return (yield* changedBy(insert)) === 1;
}

/** Ends every session: one of them may belong to a person who knew the old password. */
function* setPassword(tables: Tables, memberId: string, passwordHash: string): Steps<void> {
  yield* changedBy(tables.updateTable('members').set({ password_hash: passwordHash }).where('id', '=', memberId));
  yield* changedBy(tables.deleteFrom('sessions').where('member_id', '=', memberId));
}

function* deleteSession(tables: Tables, tokenHash: Uint8Array): Steps<void> {
  yield* changedBy(tables.deleteFrom('sessions').where('token_hash', '=', tokenHash));
}

/** Each once, in the one order in which rows are locked. */
function inOrder(subjects: readonly Uint8Array[]): Uint8Array[] {
  const byName = new Map(subjects.map((subject) => [nameOf(subject), subject]));
  return [...byName].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, subject]) => subject);
}

function nameOf(subject: Uint8Array): string {
  return Buffer.from(subject).toString('hex');
}
