/** `sluice keys edit` on both backends, and rate limits of `sluice keys create`. */

import assert from 'node:assert/strict';
import { before, suite, test } from 'node:test';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';
import { openShell, PUBLISHABLE, SECRET } from './keys-shell.ts';

interface KeyRow {
  readonly id: string;
  readonly name: string;
  readonly origins: readonly string[];
  readonly rate_limit: object | null;
}

for (const backend of ['SQLite', 'PostgreSQL'] as const) {
  suite(`Editing a key on ${backend}`, { skip: backend === 'PostgreSQL' && whyNoPostgres() }, () => {
    let location: Record<string, string> = {};
    before(async () => {
      if (backend === 'PostgreSQL') location = { STORE_URL: await (await testPostgres()).newDatabase() };
    });

    test('what is given is changed, all else stays', async (context) => {
      const { run } = await openShell(context);
      const rowOf = async (args: readonly string[]): Promise<KeyRow> =>
        JSON.parse(await run([...args, '--json'], location)) as KeyRow;
      const made = await rowOf([...PUBLISHABLE, '--users-per-second', '50']);
      assert.deepEqual(made.rate_limit, { users_per_second: 50, burst: 50 });
      const edit = (...args: string[]): Promise<KeyRow> => rowOf(['edit', made.id, ...args]);
      const { key: _key, ...row } = made as KeyRow & { key: string };
      assert.deepEqual(await edit('--name', ' shop '), { ...row, name: 'shop' });
      const origins = ['https://a.example', 'https://b.example'];
      assert.deepEqual(await edit('--origins', 'https://A.example/, https://b.example'), {
        ...row,
        name: 'shop',
        origins,
      });
      const limit = { users_per_second: 500, burst: 5_000 };
      const limited = await edit('--users-per-second', '500', '--burst', '5000');
      assert.deepEqual(limited, { ...row, name: 'shop', origins, rate_limit: limit });
      assert.deepEqual(await edit('--origins', 'any', '--no-rate-limit'), { ...row, name: 'shop', rate_limit: null });
      const text = await run(['edit', made.id, '--users-per-second', '7'], location);
      assert.match(text, /^Edited the publishable key "shop" \(pk_….{4}\) for development\. /);
      assert.match(text, /origins {5}any\n {2}rate limit {2}7 users per second, burst 7\n/);
    });
  });
}

test('mistakes are reported, and nothing is changed', async (context) => {
  const { run, refusal } = await openShell(context);
  const row = JSON.parse(await run([...SECRET, '--json'])) as KeyRow;
  const before = await run(['list', '--json']);
  for (const [args, message] of [
    [[], /no key id given/],
    [[row.id], /nothing to change: expected --name/],
    [[row.id, 'other', '--name', 'x'], /unexpected argument "other"/],
    [[row.id, '--name', ' '], /The key name must not be empty/],
    [[row.id, '--origins', 'https://a.example'], /Origins are for publishable keys/],
    [
      [row.id, '--users-per-second', 'fast'],
      /--users-per-second is "fast"; expected a whole number from 1 to 1000000\n[^-]*$/,
    ],
    [
      [row.id, '--users-per-second', '0'],
      /--users-per-second is "0"; expected a whole number from 1 to 1000000\n[^-]*$/,
    ],
    [
      [row.id, '--users-per-second', '5', '--burst', '1000001'],
      /- --burst is "1000001"; expected a whole number from 1 to/,
    ],
    [[row.id, '--burst', '5'], /--burst needs --users-per-second/],
    [[row.id, '--no-rate-limit', '--burst', '5'], /--burst needs --users-per-second/],
    [[row.id, '--users-per-second', '5', '--no-rate-limit'], /exclude each other/],
    [['key_nobody000000', '--name', 'x'], /No key in .* has the id key_nobody000000/],
  ] as const) {
    assert.match(await refusal(['edit', ...args]), message);
  }
  assert.equal(await run(['list', '--json']), before);
  await run(['revoke', row.id]);
  assert.match(await refusal(['edit', row.id, '--name', 'x']), /is revoked: only an active key can be edited/);
});
