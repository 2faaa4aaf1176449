/**
 * What every `MemberStore` does, as a suite that any backend runs: call `memberStoreContract` with a way to open one.
 * Each test gets an empty store of its own, with two accounts. `reopen` gives a second, independent connection to the
 * same data, as another edge or process would have it.
 */

import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import type { AttemptCount, MemberStore, NewInvitation, NewSession } from '../../src/members.ts';
import { newToken } from '../../src/sign-in/token.ts';

export interface OpenedMemberStore {
  readonly store: MemberStore;
  /** Two accounts, which are made elsewhere. */
  readonly accounts: readonly [Account, Account];
  /** The caller closes what it gets. */
  readonly reopen: () => Promise<MemberStore>;
  /** Closes `store` and removes its data. */
  readonly dispose: () => Promise<void>;
}

interface Account {
  readonly id: string;
  readonly name: string;
}

const NOON = Date.UTC(2026, 10, 15, 12);
const HOUR_MS = 3_600_000;

type WithStore = (
  work: (opened: OpenedMemberStore, context: TestContext) => Promise<void>,
) => (context: TestContext) => Promise<void>;

export function memberStoreContract(name: string, open: () => Promise<OpenedMemberStore>): void {
  const withStore: WithStore = (work) => async (context) => {
    const opened = await open();
    context.after(() => opened.dispose());
    await work(opened, context);
  };

  describe(`the member store contract: ${name}`, () => {
    membersTests(withStore);
    sessionsTests(withStore);
    invitationsTests(withStore);
    acceptanceTests(withStore);
    attemptsTests(withStore);
    storeTests(withStore);
  });
}

function membersTests(withStore: WithStore): void {
  test(
    'a member is found by e-mail in capitals or not, every field as it was stored',
    withStore(async ({ store, accounts: [own] }) => {
      const { id } = await join(store, own, { email: 'Ada@Example.com', passwordHash: 'hash-1' });
      const expected = {
        id,
        accountId: own.id,
        accountName: own.name,
        email: 'Ada@Example.com',
        createdAt: NOON,
        lastSignedInAt: NOON,
        passwordHash: 'hash-1',
      };
      assert.deepEqual(await store.findMember('ada@EXAMPLE.com'), expected);
      assert.equal(await store.findMember('ada@example.org'), undefined);
    }),
  );

  test(
    'the members of an account are listed oldest first, without their passwords and without those of another',
    withStore(async ({ store, accounts: [own, other] }) => {
      await join(store, own, { email: 'b@example.com', at: NOON + 2 });
      await join(store, own, { email: 'a@example.com', at: NOON + 1 });
      await join(store, other, { email: 'c@example.com' });
      const listed = await store.members(own.id);
      assert.deepEqual(
        listed.map(({ email }) => email),
        ['a@example.com', 'b@example.com'],
      );
      assert.ok(listed.every((member) => !('passwordHash' in member)));
      assert.deepEqual(await store.members('acct_nobody'), []);
    }),
  );

  test(
    'a member is removed with all sessions and open resets, but not by another account',
    withStore(async ({ store, accounts: [own, other] }) => {
      const member = await join(store, own, { email: 'a@example.com' });
      const reset = invitation(own, { kind: 'reset', email: 'a@example.com', memberId: member.id });
      await store.createInvitation(reset, 10);
      assert.equal(await store.removeMember(other.id, member.id), false);
      assert.ok(await store.findSession(member.session.tokenHash));
      assert.equal(await store.removeMember(own.id, member.id), true);
      assert.equal(await store.removeMember(own.id, member.id), false);
      assert.equal(await store.findMember('a@example.com'), undefined);
      assert.equal(await store.findSession(member.session.tokenHash), undefined);
      assert.equal(await store.findInvitation(reset.tokenHash, NOON), undefined);
    }),
  );
}

function sessionsTests(withStore: WithStore): void {
  test(
    'a session is found by its hash with its member, and sets when the member last signed in',
    withStore(async ({ store, accounts: [own] }) => {
      const { id } = await join(store, own, { email: 'a@example.com' });
      const second = session(NOON + 50);
      assert.equal(await store.startSession(id, second), true);
      const found = await store.findSession(second.tokenHash);
      assert.equal(found?.member.id, id);
      assert.equal(found?.member.lastSignedInAt, NOON + 50);
      assert.deepEqual(
        [found?.createdAt, found?.renewedAt, found?.expiresAt],
        [NOON + 50, NOON + 50, second.expiresAt],
      );
      assert.equal(await store.findSession(newToken().tokenHash), undefined);
    }),
  );

  test(
    'a new session ends the one that it replaces and no other',
    withStore(async ({ store, accounts: [own] }) => {
      const { id, session: first } = await join(store, own, { email: 'a@example.com' });
      const second = session(NOON);
      await store.startSession(id, second);
      await store.startSession(id, { ...session(NOON), replaces: second.tokenHash });
      assert.equal(await store.findSession(second.tokenHash), undefined);
      assert.ok(await store.findSession(first.tokenHash));
    }),
  );

  test(
    'a session is not started for a member who is gone',
    withStore(async ({ store }) => {
      const started = session(NOON);
      assert.equal(await store.startSession('mem_nobody', started), false);
      assert.equal(await store.changePassword('mem_nobody', 'hash', started), false);
      assert.equal(await store.findSession(started.tokenHash), undefined);
    }),
  );

  test(
    'a session is renewed, and ended',
    withStore(async ({ store, accounts: [own] }) => {
      const { session: started } = await join(store, own, { email: 'a@example.com' });
      await store.renewSession(started.tokenHash, NOON + 5, NOON + HOUR_MS + 5);
      const found = await store.findSession(started.tokenHash);
      assert.deepEqual([found?.createdAt, found?.renewedAt, found?.expiresAt], [NOON, NOON + 5, NOON + HOUR_MS + 5]);
      await store.endSession(started.tokenHash);
      await store.endSession(started.tokenHash);
      assert.equal(await store.findSession(started.tokenHash), undefined);
    }),
  );

  test(
    'a change of password ends all sessions of the member, and none of others, and starts one',
    withStore(async ({ store, accounts: [own] }) => {
      const member = await join(store, own, { email: 'a@example.com' });
      const colleague = await join(store, own, { email: 'b@example.com' });
      const other = session(NOON);
      await store.startSession(member.id, other);
      const next = { ...session(NOON + 1), replaces: member.session.tokenHash };
      assert.equal(await store.changePassword(member.id, 'hash-2', next), true);
      assert.equal((await store.findMember('a@example.com'))?.passwordHash, 'hash-2');
      assert.equal(await store.findSession(member.session.tokenHash), undefined);
      assert.equal(await store.findSession(other.tokenHash), undefined);
      assert.ok(await store.findSession(next.tokenHash));
      assert.ok(await store.findSession(colleague.session.tokenHash));
    }),
  );

  test(
    'of very many sessions of a member the least recently used are ended',
    withStore(async ({ store, accounts: [own] }) => {
      const { id, session: first } = await join(store, own, { email: 'a@example.com' });
      const others = Array.from({ length: 60 }, (_, n) => session(NOON + n + 1));
      for (const one of others) await store.startSession(id, one);
      const found = await Promise.all(others.map(({ tokenHash }) => store.findSession(tokenHash)));
      assert.equal(await store.findSession(first.tokenHash), undefined);
      assert.equal(found.filter((one) => one !== undefined).length, 50);
      assert.ok(found.at(-1));
    }),
  );
}

function invitationsTests(withStore: WithStore): void {
  test(
    'an invitation is found by its hash until it expires, every field as it was stored',
    withStore(async ({ store, accounts: [own] }) => {
      const { tokenHash, memberId, ...rest } = invitation(own, { email: 'a@example.com' });
      assert.equal(memberId, null);
      await store.createInvitation({ tokenHash, memberId, ...rest }, 10);
      const expected = { ...rest, accountName: own.name };
      assert.deepEqual(await store.findInvitation(tokenHash, rest.expiresAt - 1), expected);
      assert.equal(await store.findInvitation(tokenHash, rest.expiresAt), undefined);
      assert.equal(await store.findInvitation(newToken().tokenHash, NOON), undefined);
    }),
  );

  test(
    'open invitations of an account are listed newest first; first ones, resets and those of another are not',
    withStore(async ({ store, accounts: [own, other] }) => {
      const { id } = await join(store, own, { email: 'm@example.com' });
      const made = [
        invitation(own, { email: 'a@example.com', createdAt: NOON }),
        invitation(own, { email: 'b@example.com', createdAt: NOON + 1 }),
        invitation(own, { email: 'm@example.com', kind: 'reset', memberId: id }),
        invitation(other, { email: 'c@example.com' }),
        invitation(other, { kind: 'first' }),
      ];
      for (const one of made) await store.createInvitation(one, 10);
      const listed = await store.invitations(own.id, NOON + 1);
      assert.deepEqual(
        listed.map(({ email }) => email),
        ['b@example.com', 'a@example.com'],
      );
      assert.deepEqual(await store.invitations(own.id, NOON + 30 * HOUR_MS), []);
    }),
  );

  test(
    'another invitation for the same e-mail takes the place of the one before, in its own account only',
    withStore(async ({ store, accounts: [own, other] }) => {
      const [first, second, elsewhere] = [
        invitation(own, { email: 'a@example.com' }),
        invitation(own, { email: 'A@example.com' }),
        invitation(other, { email: 'a@example.com' }),
      ] as const;
      for (const one of [elsewhere, first, second]) await store.createInvitation(one, 10);
      assert.equal(await store.findInvitation(first.tokenHash, NOON), undefined);
      assert.ok(await store.findInvitation(second.tokenHash, NOON));
      assert.ok(await store.findInvitation(elsewhere.tokenHash, NOON));
    }),
  );

  test(
    'an account can have so many open invitations and no more; expired ones do not count',
    withStore(async ({ store, accounts: [own, other] }) => {
      for (const n of [1, 2]) assert.ok(await store.createInvitation(invitation(own, { email: `${n}@x.example` }), 2));
      const third = invitation(own, { email: '3@x.example' });
      assert.equal(await store.createInvitation(third, 2), false);
      assert.equal(await store.findInvitation(third.tokenHash, NOON), undefined);
      assert.equal(await store.createInvitation(invitation(other, { email: '3@x.example' }), 2), true);
      const later = { createdAt: NOON + 24 * HOUR_MS, expiresAt: NOON + 48 * HOUR_MS };
      assert.equal(await store.createInvitation({ ...third, ...later }, 2), true);
    }),
  );

  test(
    'an invitation is withdrawn by its own account alone',
    withStore(async ({ store, accounts: [own, other] }) => {
      const made = invitation(own, { email: 'a@example.com' });
      await store.createInvitation(made, 10);
      assert.equal(await store.removeInvitation(other.id, made.id), false);
      assert.equal(await store.removeInvitation(own.id, made.id), true);
      assert.equal(await store.removeInvitation(own.id, made.id), false);
      assert.equal(await store.findInvitation(made.tokenHash, NOON), undefined);
    }),
  );
}

function acceptanceTests(withStore: WithStore): void {
  test(
    'of many who accept one invitation at the same moment, over two connections, one gets in',
    withStore(async ({ store, accounts: [own], reopen }) => {
      const other = await reopen();
      const made = invitation(own, { kind: 'first' });
      await store.createInvitation(made, 10);
      const results = await Promise.all(
        Array.from({ length: 20 }, (_, n) =>
          (n % 2 === 0 ? store : other).acceptInvitation(acceptance(made, { email: `${n}@x.example` })),
        ),
      );
      await other.close();
      assert.equal(results.filter((result) => result === 'gone').length, 19);
      assert.equal((await store.members(own.id)).length, 1);
    }),
  );

  test(
    'an invitation that expired, was withdrawn or never was cannot be accepted, and leaves nothing',
    withStore(async ({ store, accounts: [own] }) => {
      const made = invitation(own, {});
      await store.createInvitation(made, 10);
      const late = acceptance(made, { email: 'a@example.com', at: made.expiresAt });
      assert.equal(await store.acceptInvitation(late), 'gone');
      await store.removeInvitation(own.id, made.id);
      assert.equal(await store.acceptInvitation(acceptance(made, { email: 'a@example.com' })), 'gone');
      assert.deepEqual(await store.members(own.id), []);
    }),
  );

  test(
    'the e-mail of a member cannot be taken by another, in whatever capitals, and the invitation stays',
    withStore(async ({ store, accounts: [own, other] }) => {
      await join(store, own, { email: 'Ada@example.com', passwordHash: 'hers' });
      const made = invitation(other, {});
      await store.createInvitation(made, 10);
      assert.equal(await store.acceptInvitation(acceptance(made, { email: 'ada@EXAMPLE.com' })), 'email taken');
      assert.equal((await store.findMember('ada@example.com'))?.passwordHash, 'hers');
      const member = await store.acceptInvitation(acceptance(made, { email: 'grace@example.com' }));
      assert.ok(typeof member === 'object' && member.accountId === other.id);
    }),
  );

  test(
    'the e-mail that an invitation names is the one that counts',
    withStore(async ({ store, accounts: [own] }) => {
      const member = await join(store, own, { email: 'named@example.com', claimed: 'claimed@example.com' });
      assert.equal(member.email, 'named@example.com');
    }),
  );

  test(
    'an invitation for the first member is worth nothing once there is one',
    withStore(async ({ store, accounts: [own, other] }) => {
      const first = invitation(own, { kind: 'first' });
      await store.createInvitation(first, 10);
      await join(store, own, { email: 'a@example.com' });
      assert.equal(await store.findInvitation(first.tokenHash, NOON), undefined);
      assert.equal(await store.acceptInvitation(acceptance(first, { email: 'b@example.com' })), 'gone');
      const elsewhere = invitation(other, { kind: 'first' });
      await store.createInvitation(elsewhere, 10);
      assert.ok(await store.findInvitation(elsewhere.tokenHash, NOON));
    }),
  );

  test(
    'a reset sets the password of its member, ends the sessions and starts one; it makes nobody',
    withStore(async ({ store, accounts: [own] }) => {
      const member = await join(store, own, { email: 'a@example.com', passwordHash: 'old' });
      const reset = invitation(own, { kind: 'reset', email: 'a@example.com', memberId: member.id });
      await store.createInvitation(reset, 10);
      const accepted = acceptance(reset, { email: 'a@example.com', passwordHash: 'new' });
      const result = await store.acceptInvitation(accepted);
      assert.ok(typeof result === 'object' && result.id === member.id);
      assert.equal((await store.findMember('a@example.com'))?.passwordHash, 'new');
      assert.equal(await store.findSession(member.session.tokenHash), undefined);
      assert.ok(await store.findSession(accepted.session.tokenHash));
      assert.equal((await store.members(own.id)).length, 1);
      assert.equal(await store.acceptInvitation(acceptance(reset, { email: 'a@example.com' })), 'gone');
    }),
  );
}

function attemptsTests(withStore: WithStore): void {
  const [one, two] = [newToken().tokenHash, newToken().tokenHash];
  const allow = (counts: readonly AttemptCount[]) => ({
    waitMs: 0,
    failures: counts.map(({ failures }) => failures + 1),
  });
  const countsOf = async (store: MemberStore): Promise<AttemptCount[]> => {
    let seen: readonly AttemptCount[] = [];
    await store.takeAttempt([one, two], NOON, (counts) => {
      seen = counts;
      return { waitMs: 1, failures: [] };
    });
    return [...seen];
  };

  test(
    'attempts are counted for each subject with their time, and seen over another connection',
    withStore(async ({ store, reopen }) => {
      assert.deepEqual(await countsOf(store), [
        { failures: 0, lastAt: 0 },
        { failures: 0, lastAt: 0 },
      ]);
      const other = await reopen();
      assert.equal(await store.takeAttempt([one, two], NOON, allow), 0);
      assert.equal(await other.takeAttempt([one], NOON + 5, allow), 0);
      await other.close();
      assert.deepEqual(await countsOf(store), [
        { failures: 2, lastAt: NOON + 5 },
        { failures: 1, lastAt: NOON },
      ]);
    }),
  );

  test(
    'an attempt that has to wait is not counted',
    withStore(async ({ store }) => {
      const wait = await store.takeAttempt([one], NOON, () => ({ waitMs: 250, failures: [7] }));
      assert.equal(wait, 250);
      assert.deepEqual((await countsOf(store))[0], { failures: 0, lastAt: 0 });
    }),
  );

  test(
    'what succeeded is forgotten for the one, and taken back for the others',
    withStore(async ({ store }) => {
      for (const at of [NOON, NOON + 1, NOON + 2]) await store.takeAttempt([one, two], at, allow);
      await store.forgiveAttempt(one, [two]);
      assert.deepEqual(await countsOf(store), [
        { failures: 0, lastAt: 0 },
        { failures: 2, lastAt: NOON + 2 },
      ]);
    }),
  );

  test(
    'what is long past is removed',
    withStore(async ({ store }) => {
      await store.takeAttempt([one], NOON, allow);
      await store.takeAttempt([two], NOON + 25 * HOUR_MS, allow);
      assert.deepEqual((await countsOf(store))[0], { failures: 0, lastAt: 0 });
    }),
  );
}

function storeTests(withStore: WithStore): void {
  test(
    'everything is still there after closing and opening again',
    withStore(async ({ store, accounts: [own], reopen }) => {
      const member = await join(store, own, { email: 'a@example.com' });
      await store.close();
      const again = await reopen();
      assert.equal((await again.findSession(member.session.tokenHash))?.member.id, member.id);
      await again.close();
    }),
  );

  test(
    'a closed store rejects as unavailable instead of saying that nobody is signed in',
    withStore(async ({ store }) => {
      await store.close();
      const calls: (() => Promise<unknown>)[] = [
        () => store.findSession(newToken().tokenHash),
        () => store.findMember('a@example.com'),
        () => store.findInvitation(newToken().tokenHash, NOON),
        () => store.takeAttempt([newToken().tokenHash], NOON, () => ({ waitMs: 0, failures: [1] })),
      ];
      for (const call of calls) await assert.rejects(call(), { name: 'StoreUnavailableError' });
      await store.close();
    }),
  );
}

function session(createdAt: number): NewSession {
  return { tokenHash: newToken().tokenHash, createdAt, expiresAt: createdAt + HOUR_MS, replaces: null };
}

let made = 0;

function invitation(account: Account, wishes: Partial<NewInvitation>): NewInvitation {
  const createdAt = wishes.createdAt ?? NOON;
  return {
    id: `inv_${++made}`,
    tokenHash: newToken().tokenHash,
    accountId: account.id,
    kind: 'invitation',
    email: null,
    memberId: null,
    createdAt,
    expiresAt: createdAt + 24 * HOUR_MS,
    ...wishes,
  };
}

function acceptance(
  { tokenHash }: NewInvitation,
  { email, passwordHash = 'hash', at = NOON }: { email: string; passwordHash?: string; at?: number },
) {
  return { tokenHash, memberId: `mem_${++made}`, email, passwordHash, session: session(at), at };
}

/** Makes a member by an invitation, as there is no other way. */
async function join(
  store: MemberStore,
  account: Account,
  wishes: { email: string; claimed?: string; passwordHash?: string; at?: number },
) {
  const { email, claimed = email, passwordHash = 'hash', at = NOON } = wishes;
  const invited = invitation(account, { email });
  await store.createInvitation(invited, 1_000);
  const accepted = acceptance(invited, { email: claimed, passwordHash, at });
  const member = await store.acceptInvitation(accepted);
  assert.ok(typeof member === 'object', String(member));
  return { ...member, session: accepted.session };
}
