/**
 * What every `MemberStore` does, as a suite that any backend runs: call `memberStoreContract` with a way to open one.
 * Each test gets an empty store of its own, with two accounts. `reopen` gives a second, independent connection to the
 * same data, as another edge or process would have it.
 */

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { AttemptCount, MemberStore } from '../../src/members.ts';
import { newToken } from '../../src/sign-in/token.ts';
import { acceptanceTests, invitationsTests } from './member-invitations.ts';
import { HOUR_MS } from '../../src/model.ts';
import { invitation, join, NOON, type OpenedMemberStore, session, type WithStore } from './member-rows.ts';

export function memberStoreContract(name: string, open: () => Promise<OpenedMemberStore>): void {
  const withStore: WithStore = (work) => async (context) => {
    const opened = await open();
    context.after(() => opened.dispose());
    await work({ ...opened, store: opened.keyStore.members }, context);
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
      assert.equal(await store.startSession({ id, passwordHash: 'hash' }, second), true);
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
      await store.startSession({ id, passwordHash: 'hash' }, second);
      await store.startSession({ id, passwordHash: 'hash' }, { ...session(NOON), replaces: second.tokenHash });
      assert.equal(await store.findSession(second.tokenHash), undefined);
      assert.ok(await store.findSession(first.tokenHash));
    }),
  );

  test(
    'a session is not started for a member who is gone',
    withStore(async ({ store }) => {
      const started = session(NOON);
      assert.equal(await store.startSession({ id: 'mem_nobody', passwordHash: 'hash' }, started), false);
      assert.equal(await store.changePassword({ id: 'mem_nobody', passwordHash: 'hash' }, 'hash-2', started), false);
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
      const checked = { id: member.id, passwordHash: 'hash' };
      await store.startSession(checked, other);
      const next = { ...session(NOON + 1), replaces: member.session.tokenHash };
      assert.equal(await store.changePassword(checked, 'hash-2', next), true);
      assert.equal((await store.findMember('a@example.com'))?.passwordHash, 'hash-2');
      assert.equal(await store.findSession(member.session.tokenHash), undefined);
      assert.equal(await store.findSession(other.tokenHash), undefined);
      assert.ok(await store.findSession(next.tokenHash));
      assert.ok(await store.findSession(colleague.session.tokenHash));
    }),
  );

  test(
    'another hash of the same password ends no session, and is not set where the password was changed meanwhile',
    withStore(async ({ store, accounts: [own] }) => {
      const { id, session: started } = await join(store, own, { email: 'a@example.com' });
      const colleague = await join(store, own, { email: 'b@example.com' });
      assert.equal(await store.replacePasswordHash({ id, passwordHash: 'hash' }, 'hash-2'), true);
      assert.equal((await store.findMember('a@example.com'))?.passwordHash, 'hash-2');
      assert.equal((await store.findMember('b@example.com'))?.passwordHash, 'hash');
      assert.ok(await store.findSession(started.tokenHash));
      assert.equal(await store.replacePasswordHash({ id, passwordHash: 'hash' }, 'hash-3'), false);
      assert.equal(await store.replacePasswordHash({ id: 'mem_nobody', passwordHash: 'hash' }, 'hash-3'), false);
      assert.equal((await store.findMember('a@example.com'))?.passwordHash, 'hash-2');
      assert.ok(await store.findSession(colleague.session.tokenHash));
    }),
  );

  test(
    'a password that was changed after it was checked starts no session and changes nothing',
    withStore(async ({ store, accounts: [own] }) => {
      const { id } = await join(store, own, { email: 'a@example.com', passwordHash: 'new' });
      const late = session(NOON);
      assert.equal(await store.startSession({ id, passwordHash: 'old' }, late), false);
      assert.equal(await store.changePassword({ id, passwordHash: 'old' }, 'newest', late), false);
      assert.equal(await store.findSession(late.tokenHash), undefined);
      assert.equal((await store.findMember('a@example.com'))?.passwordHash, 'new');
    }),
  );

  test(
    'of very many sessions of a member the least recently used are ended',
    withStore(async ({ store, accounts: [own] }) => {
      const { id, session: first } = await join(store, own, { email: 'a@example.com' });
      const others = Array.from({ length: 60 }, (_, n) => session(NOON + n + 1));
      for (const one of others) await store.startSession({ id, passwordHash: 'hash' }, one);
      const found = await Promise.all(others.map(({ tokenHash }) => store.findSession(tokenHash)));
      assert.equal(await store.findSession(first.tokenHash), undefined);
      assert.equal(found.filter((one) => one !== undefined).length, 50);
      assert.ok(found.at(-1));
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
      assert.equal(await other.members.takeAttempt([one], NOON + 5, allow), 0);
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
      await store.takeAttempt([two], NOON + 3 * HOUR_MS, allow);
      assert.deepEqual((await countsOf(store))[0], { failures: 0, lastAt: 0 });
    }),
  );
}

function storeTests(withStore: WithStore): void {
  test(
    'everything is still there after closing and opening again',
    withStore(async ({ store, keyStore, accounts: [own], reopen }) => {
      const member = await join(store, own, { email: 'a@example.com' });
      await keyStore.close();
      const again = await reopen();
      assert.equal((await again.members.findSession(member.session.tokenHash))?.member.id, member.id);
      await again.close();
    }),
  );

  test(
    'a closed store rejects as unavailable instead of saying that no one is signed in',
    withStore(async ({ store, keyStore }) => {
      await keyStore.close();
      const calls: (() => Promise<unknown>)[] = [
        () => store.findSession(newToken().tokenHash),
        () => store.findMember('a@example.com'),
        () => store.findInvitation(newToken().tokenHash, NOON),
        () => store.takeAttempt([newToken().tokenHash], NOON, () => ({ waitMs: 0, failures: [1] })),
      ];
      for (const call of calls) await assert.rejects(call(), { name: 'StoreUnavailableError' });
      await keyStore.close();
    }),
  );
}
