/**
 * `sluice keys create`: what it prints, what it stores, what it refuses.
 */

import assert from 'node:assert/strict';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { hashKey, isWellFormedKey } from '../../src/keys/format.ts';
import { keyIn, NOW, openShell, PUBLISHABLE, SECRET } from './keys-shell.ts';

test('a secret key is printed with a curl line for the address of the server, and only its hash is kept', async (context) => {
  const { run, withStore } = await openShell(context);
  const output = await run(SECRET, { PORT: '9000', HOST: '0.0.0.0' });
  const key = keyIn(output);
  assert.ok(isWellFormedKey(key) && key.startsWith('sk_prod_'));
  assert.match(
    output,
    /^Created the account "default"\.\nCreated the secret key "shop backend" \(key_\w{12}\) for production/,
  );
  assert.match(output, /Shown only once: it cannot be retrieved later\./);
  assert.match(output, new RegExp(`^curl -i 'http://127\\.0\\.0\\.1:9000/ingest/events' .*Bearer ${key}'`, 'm'));
  const stored = await withStore((store) => store.findByHash(hashKey(key)));
  assert.equal(stored?.name, 'shop backend');
  assert.equal(stored?.createdAt, NOW);
  assert.equal(stored?.expiresAt, null);
});

test('a publishable key is printed with a snippet for a page', async (context) => {
  const { run } = await openShell(context);
  const output = await run(PUBLISHABLE);
  const key = keyIn(output);
  assert.ok(key.startsWith('pk_'));
  assert.match(output, /^await fetch\('http:\/\/127\.0\.0\.1:8080\/ingest\/events'/m);
  assert.ok(!output.includes('curl'));
});

test('the line has the address that the server wrote down, the usual one before its first start', async (context) => {
  const { data, run } = await openShell(context);
  assert.match(await run(SECRET, { PORT: '0' }), /http:\/\/127\.0\.0\.1:8080\/ingest/);
  writeFileSync(join(data, 'server.url'), 'http://127.0.0.1:41234\n');
  assert.match(await run(SECRET, { PORT: '0' }), /http:\/\/127\.0\.0\.1:41234\/ingest/);
  assert.match(await run(SECRET, { SLUICE_PUBLIC_URL: 'https://in.example' }), /https:\/\/in\.example\/ingest/);
});

test('the JSON form has the key and all about it', async (context) => {
  const { run, withStore } = await openShell(context);
  const output = await run([
    ...PUBLISHABLE,
    '--origins',
    'https://a.example, https://b.example',
    '--expires',
    '30d',
    '--json',
  ]);
  const printed = JSON.parse(output) as Record<string, unknown>;
  const [stored] = await withStore((store) => store.list());
  const key = String(printed.key);
  assert.ok(isWellFormedKey(key));
  assert.deepEqual(printed, {
    key,
    id: stored?.id,
    name: 'web page',
    kind: 'publishable',
    environment: 'development',
    account: { id: stored?.accountId, name: 'default' },
    scopes: ['ingest:write'],
    origins: ['https://a.example', 'https://b.example'],
    rate_limit: null,
    prefix: 'pk_',
    last_four: key.slice(-4),
    state: 'active',
    created_at: '2026-11-15T12:34:56.000Z',
    expires_at: '2026-12-15T12:34:56.000Z',
    revoked_at: null,
    last_used_at: null,
    last_origin: null,
    leak_suspected_at: null,
    leak_origin: null,
  });
});

const EXPIRIES: [string, string][] = [
  ['12h', '2026-11-16T00:34:56.000Z'],
  ['2030-01-31', '2030-01-31T00:00:00.000Z'],
  ['2030-01-31T12:00Z', '2030-01-31T12:00:00.000Z'],
  ['2028-02-29T23:59:59Z', '2028-02-29T23:59:59.000Z'],
];
for (const [text, expected] of EXPIRIES) {
  test(`--expires ${text} expires on ${expected}`, async (context) => {
    const { run } = await openShell(context);
    const printed = JSON.parse(await run([...SECRET, '--expires', text, '--json'])) as { expires_at: string };
    assert.equal(printed.expires_at, expected);
  });
}

for (const text of ['soon', '30', '2030-02-30', '2030-13-01', '2030-01-31 12:00', '31.1.2030', '99999999d', '']) {
  test(`--expires "${text}" is not understood`, async (context) => {
    const { refusal } = await openShell(context);
    assert.match(await refusal([...SECRET, `--expires=${text}`]), /--expires is ".*"; expected a time such as 30d/);
  });
}

test('an expiry in the past is refused', async (context) => {
  const { refusal } = await openShell(context);
  assert.match(await refusal([...SECRET, '--expires', '2020-01-01']), /expired already, on 2020-01-01/);
});

test('all mistakes are reported at once, and nothing is made', async (context) => {
  const { data, refusal } = await openShell(context);
  const message = await refusal(
    [
      'create',
      '--nmae',
      'x',
      '--kind',
      'secert',
      '--origins',
      'shop.example',
      '--expires',
      'soon',
      '--account',
      ' ',
      'stray',
    ],
    { PORT: 'http', SLUICE_DTA: 'x' },
  );
  const lines = message.split('\n').filter((line) => line.startsWith('  - '));
  for (const part of [
    'unknown flag --nmae; did you mean --name?',
    'PORT is "http"',
    'unknown environment variable SLUICE_DTA; did you mean SLUICE_DATA?',
    'unexpected argument "stray"',
    '--name is missing',
    '--kind is "secert"; expected secret or publishable; did you mean secret?',
    '--env is missing; expected production or development, or prod or dev for short',
    'The account name must not be empty',
    '--expires is "soon"',
    'The origin "shop.example"',
  ]) {
    assert.equal(lines.filter((line) => line.includes(part)).length, 1, part);
  }
  assert.equal(lines.length, 10);
  assert.ok(!existsSync(data));
});

test('a wrong rate is reported by its flag, and no burst that was not given', async (context) => {
  const { refusal } = await openShell(context);
  for (const rate of ['0', '1000001', 'fast']) {
    const message = await refusal([...SECRET, '--users-per-second', rate]);
    assert.deepEqual(
      message.split('\n').filter((line) => line.startsWith('  - ')),
      [`  - --users-per-second is "${rate}"; expected a whole number from 1 to 1000000`],
    );
  }
  const both = await refusal([...SECRET, '--users-per-second', '5', '--burst', '0']);
  assert.match(both, /- --burst is "0"; expected a whole number from 1 to 1000000\n[^-]*$/);
});

test('prod and dev are short for production and development', async (context) => {
  const { run, refusal } = await openShell(context);
  for (const [short, environment, prefix] of [
    ['prod', 'production', 'sk_prod_'],
    ['dev', 'development', 'sk_dev_'],
  ] as const) {
    const made = JSON.parse(await run(['create', '--name', short, '--kind', 'secret', '--env', short, '--json'])) as {
      key: string;
      environment: string;
    };
    assert.equal(made.environment, environment);
    assert.ok(made.key.startsWith(prefix), short);
  }
  const words = await refusal(['create', '--name', 'x', '--kind', 'secret', '--env', 'constructor']);
  assert.match(words, /--env is "constructor"; expected production or development, or prod or dev for short\n/);
});

test('a second key goes to the one account that is there', async (context) => {
  const { run, withStore } = await openShell(context);
  await run([...SECRET, '--account', 'acme']);
  const output = await run(PUBLISHABLE);
  assert.ok(!output.includes('Created the account'));
  assert.match(output, /account "acme"/);
  assert.equal((await withStore((store) => store.accounts())).length, 1);
});

test('an account that is named is made when it is new, and used when it is there', async (context) => {
  const { run } = await openShell(context);
  assert.match(await run([...SECRET, '--account', 'acme']), /^Created the account "acme"\./);
  assert.ok(!(await run([...SECRET, '--account', 'acme'])).includes('Created the account'));
});

test('with several accounts, one has to be named; they are listed', async (context) => {
  const { run, refusal, withStore } = await openShell(context);
  await run([...SECRET, '--account', 'acme']);
  await run([...SECRET, '--account', 'bolt']);
  const message = await refusal(SECRET);
  assert.match(message, /several accounts/);
  assert.match(message, /--account "acme"\n {2}--account "bolt"/);
  assert.equal((await withStore((store) => store.list())).length, 2);
});

test('--data wins over SLUICE_DATA', async (context) => {
  const { data, run } = await openShell(context);
  const elsewhere = `${data}-elsewhere`;
  await run([...SECRET, '--data', elsewhere]);
  assert.ok(existsSync(join(elsewhere, 'keys.db')));
  assert.ok(!existsSync(data));
});
