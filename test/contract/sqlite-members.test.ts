/**
 * The embedded member store: the contract, and what only a file is exposed to: one made by an older Sluice, and secrets
 * that must not be in it.
 */

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { newAccount } from '../../src/keys/manage.ts';
import { acceptInvitation, invite } from '../../src/sign-in/invite.ts';
import { Passwords } from '../../src/sign-in/password.ts';
import { temporaryFolder } from '../keys/temporary-store.ts';
import { memberStoreContract } from './members.ts';

const NOW = Date.UTC(2026, 10, 15);

memberStoreContract('SQLite', async () => {
  const { folder, remove } = await temporaryFolder();
  const file = join(folder, 'keys.db');
  const keyStore = openSqliteKeyStore(file);
  const own = await keyStore.ensureAccount(newAccount('acme', NOW));
  const other = await keyStore.ensureAccount(newAccount('bolt', NOW));
  return {
    keyStore,
    accounts: [own, other],
    reopen: async () => openSqliteKeyStore(file),
    dispose: async () => {
      await keyStore.close();
      await remove();
    },
  };
});

test('a file of an older, unreleased format is refused and left as it is', async (context) => {
  const { folder, remove } = await temporaryFolder();
  context.after(remove);
  const file = join(folder, 'keys.db');
  const keys = openSqliteKeyStore(file);
  await keys.ensureAccount(newAccount('acme', NOW));
  await keys.close();
  const older = new DatabaseSync(file);
  older.exec('PRAGMA user_version = 3');
  older.close();
  const before = await readFile(file);
  assert.throws(() => openSqliteKeyStore(file), /older version of Sluice, before 1\.0/);
  assert.deepEqual(await readFile(file), before);
});

test('the file holds neither passwords nor tokens', async (context) => {
  const { folder, remove } = await temporaryFolder();
  context.after(remove);
  const file = join(folder, 'keys.db');
  const keyStore = openSqliteKeyStore(file);
  const account = await keyStore.ensureAccount(newAccount('acme', NOW));
  const { members } = keyStore;
  const wish = { accountId: account.id, kind: 'first', email: null, member: null } as const;
  const invitation = await invite(members, wish, NOW);
  assert.ok(invitation);
  const password = 'correct horse battery';
  const browser = { address: '203.0.113.7', token: undefined };
  const accepted = await acceptInvitation(
    members,
    new Passwords(),
    { token: invitation.token, email: 'ada@example.com', password, browser },
    () => NOW,
  );
  assert.ok(accepted.outcome === 'signed in');
  await keyStore.close();
  const content = await readFile(file, 'latin1');
  assert.ok(content.includes('ada@example.com'));
  for (const secret of [password, invitation.token, accepted.token, '203.0.113.7']) {
    assert.ok(!content.includes(secret), secret);
  }
});
