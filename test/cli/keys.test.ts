/**
 * `sluice keys list` and `revoke`, help and unknown commands.
 */

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { hashKey, makeKey } from '../../src/keys/format.ts';
import type { ApiKey } from '../../src/keys.ts';
import { DAY_MS } from '../../src/model.ts';
import { keyIn, minuteOf, NOW, openShell, SECRET } from './keys-shell.ts';

test('the list shows every key with its state, and never a key itself', async (context) => {
  const { run, withStore, setNow } = await openShell(context);
  const keys: string[] = [];
  const names = ['active', 'expiring', 'revoked', 'leaked'];
  for (const [i, name] of names.entries()) {
    setNow(NOW + i * 60_000);
    const expiry = name === 'expiring' ? ['--expires', '1d'] : [];
    keys.push(keyIn(await run(['create', '--name', name, '--kind', 'secret', '--env', 'production', ...expiry])));
  }
  await withStore(async (store) => {
    const idOf = (name: string, all: ApiKey[]): string => all.find((key) => key.name === name)?.id ?? '';
    const all = await store.list();
    await store.revoke(idOf('revoked', all), NOW);
    await store.recordUsage([{ keyId: idOf('leaked', all), usedAt: NOW, leakOrigin: 'https://x.example\u001b[2J' }]);
  });
  setNow(NOW + 2 * DAY_MS);
  const output = await run(['list']);
  const [header = '', ...lines] = output.trimEnd().split('\n');
  assert.match(header, /^id +name +kind +environment +account +key +created +last used +state$/);
  assert.deepEqual(
    lines.map((line) => line.split(/ {2,}/).slice(1)),
    [
      ['leaked', minuteOf(NOW + 180_000), minuteOf(NOW), 'active, probably leaked (https://x.example\u{fffd}[2J)'],
      ['revoked', minuteOf(NOW + 120_000), 'never', 'revoked'],
      ['expiring', minuteOf(NOW + 60_000), 'never', 'expired'],
      ['active', minuteOf(NOW), 'never', 'active'],
    ].map(([name = '', created, lastUsed, state]) => [
      name,
      'secret',
      'production',
      'default',
      `sk_prod_…${keys[names.indexOf(name)]?.slice(-4)}`,
      created,
      lastUsed,
      state,
    ]),
  );
  for (const key of keys) assert.ok(!output.includes(key));

  const rows = JSON.parse(await run(['list', '--json'])) as {
    name: string;
    state: string;
    leak_origin: string | null;
  }[];
  assert.deepEqual(
    rows.map(({ name, state }) => [name, state]),
    [
      ['leaked', 'probably leaked'],
      ['revoked', 'revoked'],
      ['expiring', 'expired'],
      ['active', 'active'],
    ],
  );
});

test('a list without keys says how to make one, and makes no file', async (context) => {
  const { data, run } = await openShell(context);
  assert.match(await run(['list']), /no keys in .* yet.*\n {2}sluice keys create --name/);
  assert.equal(await run(['list', '--json']), '[]\n');
  assert.ok(!existsSync(data));
});

test('a revoked key is named, and servers reject it within 2 seconds; revoking again does nothing', async (context) => {
  const { run, withStore, setNow } = await openShell(context);
  const key = keyIn(await run(SECRET));
  const id = (await withStore((store) => store.findByHash(hashKey(key))))?.id ?? '';
  setNow(NOW + 60_000);
  const output = await run(['revoke', id]);
  assert.match(
    output,
    /^Revoked "shop backend" \(sk_prod_….{4}\), a secret key of account "default" for production\.\n/,
  );
  assert.match(output, /Running servers reject it within 2 seconds\. This cannot be undone\.\n$/);
  setNow(NOW + 120_000);
  assert.match(
    await run(['revoke', id]),
    new RegExp(`^Nothing to do: .* revoked already, on ${minuteOf(NOW + 60_000)}\\.`),
  );
  const printed = JSON.parse(await run(['revoke', id, '--json'])) as { state: string; revoked_at: string };
  assert.deepEqual([printed.state, printed.revoked_at], ['revoked', '2026-11-15T12:35:56.000Z']);
});

test('an unknown id is refused with a hint; a key given instead is not repeated', async (context) => {
  const { data, run, refusal } = await openShell(context);
  assert.match(await refusal(['revoke', 'key_nobody000000']), /No key in .* has the id key_nobody000000\..*keys list/);
  assert.ok(!existsSync(data));
  await run(SECRET);
  const key = makeKey('secret', 'production');
  const message = await refusal(['revoke', key]);
  assert.ok(!message.includes(key));
  assert.match(message, /^That is not the id of a key: ids begin with key_\. "sluice keys list"/);
});

test('revoke without an id, or with two, is refused', async (context) => {
  const { refusal } = await openShell(context);
  assert.match(await refusal(['revoke']), /no key id given/);
  assert.match(await refusal(['revoke', 'key_1', 'key_2']), /unexpected argument "key_2"/);
});

test('an unknown command is refused with the one that was meant', async (context) => {
  const { refusal } = await openShell(context);
  assert.match(await refusal(['lsit']), /"sluice keys lsit" is not a command; did you mean list\?/);
});

test('a damaged key file is reported by every command', async (context) => {
  const { data, run, refusal } = await openShell(context);
  await run(SECRET);
  await writeFile(join(data, 'keys.db'), 'garbage '.repeat(1_000));
  for (const args of [SECRET, ['list'], ['revoke', 'key_1']]) {
    assert.match(await refusal(args), /is damaged/);
  }
});
