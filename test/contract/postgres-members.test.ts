/** The member store on PostgreSQL: the contract, and what several nodes must not do at the same moment. */

import assert from 'node:assert/strict';
import { suite, type TestContext, test } from 'node:test';
import { openPostgresKeyStore } from '../../src/backends/postgres/keys.ts';
import { newAccount } from '../../src/keys/manage.ts';
import type { KeyStore } from '../../src/keys.ts';
import type { MemberStore } from '../../src/members.ts';
import { newToken } from '../../src/sign-in/token.ts';
import { lendDatabase } from '../backends/postgres/database.ts';
import { whyNoPostgres } from '../servers/postgres.ts';
import { type Account, acceptance, invitation, join, NOON, session } from './member-rows.ts';
import { memberStoreContract } from './members.ts';

const NODES = 8;

async function openStores() {
  const { pool, connect, giveBack } = await lendDatabase();
  const keyStore = openPostgresKeyStore(pool.share());
  const own: Account = await keyStore.ensureAccount(newAccount('acme', NOON));
  const other: Account = await keyStore.ensureAccount(newAccount('bolt', NOON));
  const open = async (): Promise<KeyStore> => openPostgresKeyStore(await connect({ max: 2 }));
  return { accounts: [own, other] as const, keyStore, open, giveBack };
}

/** Stores of as many nodes, on one database. */
async function nodesFor(context: TestContext): Promise<{ account: Account; nodes: MemberStore[]; first: MemberStore }> {
  const { accounts, keyStore, open, giveBack } = await openStores();
  const opened = await Promise.all(Array.from({ length: NODES }, open));
  context.after(async () => {
    await Promise.all([keyStore, ...opened].map((node) => node.close()));
    await giveBack();
  });
  const nodes = opened.map(({ members }) => members);
  const [first] = nodes;
  assert.ok(first);
  return { account: accounts[0], nodes, first };
}

suite('The member store on PostgreSQL', { skip: whyNoPostgres() }, () => {
  memberStoreContract('PostgreSQL', async () => {
    const { accounts, keyStore, open, giveBack } = await openStores();
    return { keyStore, accounts, reopen: open, dispose: () => keyStore.close().then(giveBack) };
  });

  test('an invitation that all nodes accept at one moment makes one member', async (context) => {
    const { account, nodes, first } = await nodesFor(context);
    const invited = invitation(account, { kind: 'invitation' });
    await first.createInvitation(invited, 10);
    const outcomes = await Promise.all(
      nodes.map((node, n) => node.acceptInvitation(acceptance(invited, { email: `m${n}@example.com` }))),
    );
    assert.equal(outcomes.filter((outcome) => outcome === 'gone').length, NODES - 1);
    assert.equal((await first.members(account.id)).length, 1);
  });

  test('of several first invitations that are accepted at one moment only one succeeds', async (context) => {
    const { account, nodes, first } = await nodesFor(context);
    const invited = nodes.map(() => invitation(account, { kind: 'first' }));
    for (const one of invited) await first.createInvitation(one, 100);
    const outcomes = await Promise.all(
      nodes.map((node, n) => {
        const own = invited[n];
        assert.ok(own);
        return node.acceptInvitation(acceptance(own, { email: `m${n}@example.com` }));
      }),
    );
    assert.equal(outcomes.filter((outcome) => typeof outcome === 'object').length, 1);
    assert.equal((await first.members(account.id)).length, 1);
  });

  test('an e-mail that all nodes take at one moment becomes one member, and the other invitations stay', async (context) => {
    const { account, nodes, first } = await nodesFor(context);
    const invited = nodes.map(() => invitation(account, {}));
    for (const one of invited) await first.createInvitation(one, 100);
    const outcomes = await Promise.all(
      nodes.map((node, n) => {
        const own = invited[n];
        assert.ok(own);
        return node.acceptInvitation(acceptance(own, { email: n % 2 === 0 ? 'a@example.com' : 'A@Example.com' }));
      }),
    );
    assert.equal(outcomes.filter((outcome) => outcome === 'email taken').length, NODES - 1);
    assert.equal((await first.invitations(account.id, NOON)).length, NODES - 1);
  });

  test('an account never has more open invitations than it may, however many nodes make them', async (context) => {
    const { account, nodes, first } = await nodesFor(context);
    const made = await Promise.all(nodes.map((node) => node.createInvitation(invitation(account, {}), 3)));
    assert.equal(made.filter(Boolean).length, 3);
    assert.equal((await first.invitations(account.id, NOON)).length, 3);
  });

  test('attempts at one moment on all nodes are counted one after the other', async (context) => {
    const { nodes, first } = await nodesFor(context);
    const [email, address] = [newToken().tokenHash, newToken().tokenHash];
    const seen: number[] = [];
    const waits = await Promise.all(
      nodes.map((node, n) =>
        node.takeAttempt(n % 2 === 0 ? [email, address] : [address, email], NOON, (counts) => {
          const failures = counts.map((count) => count.failures + 1);
          const isFree = (failures[0] ?? 0) <= 5;
          if (isFree) seen.push(failures[0] ?? 0);
          return { waitMs: isFree ? 0 : 1_000, failures };
        }),
      ),
    );
    assert.deepEqual(
      seen.toSorted((a, b) => a - b),
      [1, 2, 3, 4, 5],
    );
    assert.equal(waits.filter((wait) => wait === 0).length, 5);
    await Promise.all(nodes.map((node) => node.forgiveAttempt(email, [address])));
    let left: number[] = [];
    await first.takeAttempt([email, address], NOON, (counts) => {
      left = counts.map(({ failures }) => failures);
      return { waitMs: 1, failures: [] };
    });
    assert.deepEqual(left, [0, 0]);
  });

  test('of password changes at one moment one wins, and the sessions of the others are not started', async (context) => {
    const { account, nodes, first } = await nodesFor(context);
    const { id } = await join(first, account, { email: 'a@example.com', passwordHash: 'old' });
    const started = nodes.map(() => session(NOON + 1));
    const outcomes = await Promise.all(
      nodes.map((node, n) => {
        const own = started[n];
        assert.ok(own);
        return node.changePassword({ id, passwordHash: 'old' }, `new ${n}`, own);
      }),
    );
    const winner = outcomes.indexOf(true);
    assert.equal(outcomes.filter(Boolean).length, 1);
    assert.equal((await first.findMember('a@example.com'))?.passwordHash, `new ${winner}`);
    const found = await Promise.all(started.map(({ tokenHash }) => first.findSession(tokenHash)));
    assert.deepEqual(
      found.map((one) => one !== undefined),
      outcomes,
    );
  });
});
