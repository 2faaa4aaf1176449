/**
 * Making keys and accounts: what is stored, what is refused and in which words.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OperatorError } from '../../src/errors.ts';
import { createKey, type KeyOptions, newAccount } from '../../src/keys/manage.ts';
import { hashKey, isWellFormedKey } from '../../src/keys/format.ts';
import { temporaryKeyStore } from './temporary-store.ts';

const NOW = Date.UTC(2026, 10, 15);

const SECRET: KeyOptions = {
  name: 'shop backend',
  kind: 'secret',
  environment: 'production',
  origins: [],
  expiresAt: null,
};
const PUBLISHABLE: KeyOptions = { ...SECRET, kind: 'publishable' };

test('a key that was made is well-formed and can be looked up', async (context) => {
  const { store } = await temporaryKeyStore(context);
  const account = await store.ensureAccount(newAccount('acme', NOW));
  const { key, row } = await createKey(store, { ...SECRET, accountId: account.id, now: NOW });
  assert.ok(isWellFormedKey(key));
  assert.match(row.id, /^key_[0-9A-Za-z]{12}$/);
  const found = await store.findByHash(hashKey(key));
  assert.equal(found?.id, row.id);
  assert.equal(found?.accountName, 'acme');
  assert.equal(found?.prefix, 'sk_prod_');
  assert.equal(found?.lastFour, key.slice(-4));
});

test('scopes follow from the kind of key', async (context) => {
  const { store } = await temporaryKeyStore(context);
  const account = await store.ensureAccount(newAccount('acme', NOW));
  const secret = await createKey(store, { ...SECRET, accountId: account.id, now: NOW });
  const publishable = await createKey(store, { ...PUBLISHABLE, accountId: account.id, now: NOW });
  assert.deepEqual(secret.row.scopes, ['ingest:write', 'data:read', 'messages:send']);
  assert.deepEqual(publishable.row.scopes, ['ingest:write']);
});

test('origins are stored the way browsers send them, each once', async (context) => {
  const { store } = await temporaryKeyStore(context);
  const account = await store.ensureAccount(newAccount('acme', NOW));
  const { row } = await createKey(store, {
    ...PUBLISHABLE,
    origins: [
      'https://Shop.Example:443',
      'https://shop.example',
      'https://shop.example/',
      'https://bücher.example:8443',
      'http://localhost:5173',
    ],
    accountId: account.id,
    now: NOW,
  });
  assert.deepEqual(row.origins, [
    'https://shop.example',
    'https://xn--bcher-kva.example:8443',
    'http://localhost:5173',
  ]);
});

const BAD_ORIGINS = [
  'shop.example',
  'http://shop.example',
  'https://shop.example/path',
  'https://shop.example?x=1',
  'https://user@shop.example',
  'https://*.shop.example',
  'https://shop.example:99999',
  'https://',
  'javascript:alert(1)',
  '*',
];
for (const origin of BAD_ORIGINS) {
  test(`the origin ${origin} is refused`, async (context) => {
    const message = await refusal(context, { ...PUBLISHABLE, origins: [origin] });
    assert.ok(message.includes(`"${origin}"`));
    assert.match(message, /https:\/\/host/);
  });
}

test('a secret key takes no origins', async (context) => {
  assert.match(await refusal(context, { ...SECRET, origins: ['https://shop.example'] }), /publishable keys/);
});

test('more than 100 origins are refused', async (context) => {
  const origins = Array.from({ length: 101 }, (_, i) => `https://shop-${i}.example`);
  assert.match(await refusal(context, { ...PUBLISHABLE, origins }), /at most 100 origins; 101 were given/);
});

test('a name is refused when it is blank, longer than 100 characters, or has control characters', async (context) => {
  assert.match(await refusal(context, { ...SECRET, name: '  ' }), /must not be empty/);
  assert.match(await refusal(context, { ...SECRET, name: 'x'.repeat(101) }), /101 characters; at most 100/);
  assert.match(await refusal(context, { ...SECRET, name: 'a\u001b[2Jb' }), /control characters/);
});

test('a name of exactly 100 characters is taken, without the blanks around it', async (context) => {
  const { store } = await temporaryKeyStore(context);
  const account = await store.ensureAccount(newAccount('acme', NOW));
  const name = 'n'.repeat(100);
  const { row } = await createKey(store, { ...SECRET, name: ` ${name} `, accountId: account.id, now: NOW });
  assert.equal(row.name, name);
});

test('a key that would have expired already is refused', async (context) => {
  assert.match(await refusal(context, { ...SECRET, expiresAt: NOW }), /expired already, on 2026-11-15/);
});

test('all mistakes are reported at once', async (context) => {
  const message = await refusal(context, { ...SECRET, name: '', origins: ['nonsense'], expiresAt: NOW - 1 });
  assert.equal(message.split('\n').length, 4);
});

test('a new account has an id of its own; names that cannot be shown are refused', () => {
  const account = newAccount(' acme ', NOW);
  assert.match(account.id, /^acct_[0-9A-Za-z]{12}$/);
  assert.deepEqual(account, { id: account.id, name: 'acme', createdAt: NOW });
  assert.notEqual(newAccount('acme', NOW).id, account.id);
  assert.throws(() => newAccount('', NOW), OperatorError);
});

/** Tries to make the key, checks that nothing was stored, and gives the words of the refusal. */
async function refusal(context: Parameters<typeof temporaryKeyStore>[0], options: KeyOptions): Promise<string> {
  const { store } = await temporaryKeyStore(context);
  const account = await store.ensureAccount(newAccount('acme', NOW));
  const error: unknown = await createKey(store, { ...options, accountId: account.id, now: NOW }).catch(
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof OperatorError);
  assert.deepEqual(await store.list(), []);
  return error.message;
}
