/**
 * `sluice keys roll` on both backends: the new key shown once, the old one working until the overlap has passed, and a
 * running server that follows.
 */

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { before, suite, test, type TestContext } from 'node:test';
import { makeKey } from '../../src/keys/format.ts';
import { DAY_MS, HOUR_MS } from '../../src/model.ts';
import { eventually, removeFolder, startServer, temporaryFolder, type TestServer } from '../server.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';
import { keyIn, minuteOf, NOW, openShell, type Shell } from './keys-shell.ts';

const PUBLISHABLE = [
  ...['create', '--name', 'web page', '--kind', 'publishable', '--env', 'production'],
  ...['--origins', 'https://shop.example'],
];

interface KeyRow {
  readonly id: string;
  readonly key: string;
  readonly name: string;
  readonly kind: string;
  readonly environment: string;
  readonly origins: readonly string[];
  readonly state: string;
  readonly account: { readonly id: string };
  readonly expires_at: string | null;
}

async function createKey({ run }: Shell, args: readonly string[]): Promise<KeyRow> {
  return JSON.parse(await run([...args, '--json'])) as KeyRow;
}

for (const backend of ['SQLite', 'PostgreSQL'] as const) {
  suite(`Rolling a key on ${backend}`, { skip: backend === 'PostgreSQL' && whyNoPostgres() }, () => {
    let location: Record<string, string> = {};
    before(async () => {
      if (backend === 'PostgreSQL') location = { STORE_URL: await (await testPostgres()).newDatabase() };
    });

    async function openKeys(context: TestContext): Promise<Shell> {
      const shell = await openShell(context);
      return {
        ...shell,
        run: (args, env) => shell.run(args, { ...location, ...env }),
        refusal: (args, env) => shell.refusal(args, { ...location, ...env }),
      };
    }

    test('the new key has what the old one had, and the old one expires after the overlap', async (context) => {
      const shell = await openKeys(context);
      const old = await createKey(shell, PUBLISHABLE);
      const output = await shell.run(['roll', old.id, '--overlap', '36h']);
      const key = keyIn(output);
      assert.notEqual(key, old.key);
      assert.ok(!output.includes(old.key));
      assert.match(
        output,
        /^Rolled the publishable key "web page" \(pk_….{4}\) of account "default" for production\.\n/,
      );
      assert.match(output, /Shown only once/);
      assert.ok(output.includes(`The old key ${old.id} works until ${minuteOf(NOW + 36 * HOUR_MS)}.`), output);

      const rows = JSON.parse(await shell.run(['list', '--json'])) as KeyRow[];
      const newRow = rows.find(({ id }) => output.includes(`The new key (${id})`));
      assert.deepEqual(
        [newRow?.name, newRow?.kind, newRow?.environment, newRow?.origins, newRow?.account.id, newRow?.expires_at],
        ['web page', 'publishable', 'production', ['https://shop.example'], old.account.id, null],
      );
      const oldRow = rows.find(({ id }) => id === old.id);
      assert.deepEqual([oldRow?.state, oldRow?.expires_at], ['active', '2026-11-17T00:34:56.000Z']);
    });

    test('the overlap is a day unless it is given, 0 ends the old key, and JSON has both keys', async (context) => {
      const shell = await openKeys(context);
      const first = await createKey(shell, PUBLISHABLE);
      const second = JSON.parse(await shell.run(['roll', first.id, '--json'])) as KeyRow & { old: KeyRow };
      assert.deepEqual([second.old.id, second.old.expires_at], [first.id, new Date(NOW + DAY_MS).toISOString()]);
      assert.equal(second.state, 'active');
      const output = await shell.run(['roll', second.id, '--overlap=0']);
      assert.match(output, /The old key .* has ended; running servers reject it within 2 seconds\./);
      assert.match(
        await shell.refusal(['roll', second.id]),
        /^The key .* is expired: only an active key can be rolled\./,
      );
      await shell.run(['revoke', first.id]);
      assert.match(await shell.refusal(['roll', first.id]), /is revoked: only an active key/);
    });

    test('a key that would have expired before the overlap ends still does', async (context) => {
      const shell = await openKeys(context);
      const old = await createKey(shell, [...PUBLISHABLE, '--expires', '1h']);
      await shell.run(['roll', old.id, '--overlap', '30d']);
      const rows = JSON.parse(await shell.run(['list', '--json'])) as KeyRow[];
      assert.equal(rows.find(({ id }) => id === old.id)?.expires_at, new Date(NOW + DAY_MS / 24).toISOString());
    });

    test('a running server accepts the new key and rejects the old one', async (context) => {
      const dataFolder = temporaryFolder();
      const server = await startServer({ dataFolder, env: location });
      context.after(async () => {
        await server.stop();
        removeFolder(dataFolder);
      });
      const shell = await openKeys(context);
      const own = { SLUICE_DATA: dataFolder };
      // A clock that stands still would end the key in the past of the server or in its future.
      shell.setNow(Date.now());
      const old = JSON.parse(
        await shell.run(['create', '--name', 'rolled', '--kind', 'secret', '--env', 'development', '--json'], own),
      ) as KeyRow;
      await eventually('the old key works', async () => (await statusOf(server, old.key)) === 202);
      shell.setNow(Date.now());
      const rolled = JSON.parse(await shell.run(['roll', old.id, '--overlap', '0', '--json'], own)) as KeyRow;
      await eventually('the new key works', async () => (await statusOf(server, rolled.key)) === 202);
      await eventually('the old key is rejected', async () => (await statusOf(server, old.key)) === 401);
    });
  });
}

test('roll reports all mistakes at once, makes nothing, and never repeats a key', async (context) => {
  const { data, run, refusal } = await openShell(context);
  const words = await refusal(['roll', '--overlap', '31d', '--jsno']);
  assert.match(words, /no key id given/);
  assert.match(words, /--overlap is "31d"; expected a time from 0 to 30d, such as 30s/);
  assert.match(words, /unknown flag --jsno; did you mean --json\?/);
  assert.match(await refusal(['roll', 'key_1', 'key_2']), /unexpected argument "key_2"; keys are rolled one at a time/);
  assert.match(await refusal(['roll', 'key_unknown0000']), /No key in .* has the id key_unknown0000\./);
  assert.match(await refusal(['rol', 'key_1']), /"sluice keys rol" is not a command; did you mean roll\?/);
  assert.ok(!existsSync(data));
  await run(['create', '--name', 'x', '--kind', 'secret', '--env', 'production']);
  const key = makeKey('secret', 'production');
  assert.ok(!(await refusal(['roll', key])).includes(key));
});

async function statusOf({ baseUrl }: TestServer, key: string): Promise<number> {
  const response = await fetch(`${baseUrl}/ingest/events`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: '{"users":[{"identifiers":{"user_id":"ada"},"events":[{"event_name":"seen"}]}]}',
  });
  await response.arrayBuffer();
  return response.status;
}
