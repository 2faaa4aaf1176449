/** What every `MemberStore` does with invitations: part of the suite in `members.ts`. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newToken } from '../../src/sign-in/token.ts';
import { HOUR_MS } from '../../src/model.ts';
import { acceptance, invitation, join, NOON, type WithStore } from './member-rows.ts';

export function invitationsTests(withStore: WithStore): void {
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

export function acceptanceTests(withStore: WithStore): void {
  test(
    'of many who accept one invitation at the same moment, over two connections, one gets in',
    withStore(async ({ store, accounts: [own], reopen }) => {
      const other = await reopen();
      const made = invitation(own, { kind: 'first' });
      await store.createInvitation(made, 10);
      const results = await Promise.all(
        Array.from({ length: 20 }, (_, n) =>
          (n % 2 === 0 ? store : other.members).acceptInvitation(acceptance(made, { email: `${n}@x.example` })),
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
    'a reset sets the password of its member, ends the sessions and starts one; it creates no member',
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
