/**
 * The embedded member store: the contract, and what only a file can go through: one that an older Sluice made, and what
 * may not be in it.
 */

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { openSqliteKeyStore } from '../../src/backends/sqlite/keys.ts';
import { openSqliteMemberStore } from '../../src/backends/sqlite/members.ts';
import { createKey, newAccount } from '../../src/keys/create.ts';
import { hashKey } from '../../src/keys/format.ts';
import { acceptInvitation, invite } from '../../src/sign-in/invite.ts';
import { Passwords } from '../../src/sign-in/password.ts';
import { temporaryFolder } from '../keys/temporary-store.ts';
import { memberStoreContract } from './members.ts';

const NOW = Date.UTC(2026, 10, 15);

memberStoreContract('SQLite', async () => {
  const { folder, remove } = await temporaryFolder();
  const file = join(folder, 'keys.db');
  const keys = openSqliteKeyStore(file);
  const own = await keys.ensureAccount(newAccount('acme', NOW));
  const other = await keys.ensureAccount(newAccount('bolt', NOW));
  await keys.close();
  const store = openSqliteMemberStore(file);
  return {
    store,
    accounts: [own, other],
    reopen: async () => openSqliteMemberStore(file),
    dispose: async () => {
      await store.close();
      await remove();
    },
  };
});

test('a file that a Sluice without members made keeps its keys and takes members', async (context) => {
  const { folder, remove } = await temporaryFolder();
  context.after(remove);
  const file = join(folder, 'keys.db');
  const keys = openSqliteKeyStore(file);
  const account = await keys.ensureAccount(newAccount('acme', NOW));
  const wishes = { name: 'old', kind: 'secret', environment: 'production', origins: [], expiresAt: null } as const;
  const { key } = await createKey(keys, { ...wishes, accountId: account.id, now: NOW });
  await keys.close();
  const older = new DatabaseSync(file);
  for (const table of ['belongs_to', 'sign_in_attempts', 'invitations', 'sessions', 'members'])
    older.exec(`DROP TABLE ${table}`);
  older.exec('DROP INDEX keys_by_account; PRAGMA user_version = 1');
  older.close();

  const members = openSqliteMemberStore(file);
  const wish = { accountId: account.id, kind: 'first', email: null, member: null } as const;
  assert.ok(await invite(members, wish, NOW));
  await members.close();
  const again = openSqliteKeyStore(file);
  assert.equal((await again.findByHash(hashKey(key)))?.name, 'old');
  await again.close();
});

test('the file holds neither passwords nor tokens', async (context) => {
  const { folder, remove } = await temporaryFolder();
  context.after(remove);
  const file = join(folder, 'keys.db');
  const keys = openSqliteKeyStore(file);
  const account = await keys.ensureAccount(newAccount('acme', NOW));
  await keys.close();
  const members = openSqliteMemberStore(file);
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
  await members.close();
  const content = await readFile(file, 'latin1');
  assert.ok(content.includes('ada@example.com'));
  for (const secret of [password, invitation.token, accepted.token, '203.0.113.7']) {
    assert.ok(!content.includes(secret), secret);
  }
});
