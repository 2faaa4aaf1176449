/**
 * `sluice invite`: links for first members, for others and for new passwords; and what the start of a server says about
 * signing in.
 */

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { announceStart } from '../../src/cli/announce.ts';
import { runInvite } from '../../src/cli/invite.ts';
import { type Env, loadConfig } from '../../src/config/config.ts';
import { OperatorError } from '../../src/errors.ts';
import type { MemberStore } from '../../src/members.ts';
import { acceptInvitation, readInvitation } from '../../src/sign-in/invite.ts';
import { Passwords } from '../../src/sign-in/password.ts';
import { temporaryFolder } from '../keys/temporary-store.ts';
import { testShell } from './data-shell.ts';
import { runSluice, startServer } from '../server.ts';

const NOW = Date.UTC(2026, 10, 15, 12);
const LINK = /(http\S+)\/dashboard\/welcome#([\w-]{43})\n/;

interface Invited {
  readonly kind: string;
  readonly account: { readonly id: string; readonly name: string };
  readonly email: string | null;
  readonly link: string;
  readonly expires_at: string;
}

async function openShell(context: TestContext) {
  const { folder, remove } = await temporaryFolder();
  context.after(remove);
  const data = join(folder, 'data');
  const file = join(data, 'keys.db');
  const run = async (args: readonly string[], env: Env = {}): Promise<string> => {
    const { shell, out } = testShell({ env: { SLUICE_DATA: data, ...env }, now: () => NOW });
    assert.equal(await runInvite(args, shell), 0);
    return out();
  };
  const runJson = async (...args: string[]): Promise<Invited> => JSON.parse(await run([...args, '--json'])) as Invited;
  const refusal = async (args: readonly string[], env: Env = {}): Promise<string> => {
    const error: unknown = await run(args, env).catch((reason: unknown) => reason);
    assert.ok(error instanceof OperatorError, String(error));
    return error.message;
  };
  const withMembers = async <T>(work: (members: MemberStore) => Promise<T>): Promise<T> => {
    const keyStore = openSqliteKeyStore(file);
    try {
      return await work(keyStore.members);
    } finally {
      await keyStore.close();
    }
  };
  /** As the page does it. */
  const accept = (link: string, email: string | null, password = 'correct horse battery') =>
    withMembers(async (members) => {
      const token = link.split('#')[1] ?? '';
      const browser = { address: '', token: undefined };
      const accepted = await acceptInvitation(members, new Passwords(), { token, email, password, browser }, () => NOW);
      assert.equal(accepted.outcome, 'signed in');
    });
  const start = async (env: Env = {}): Promise<string> => {
    const keyStore = openSqliteKeyStore(file);
    let output = '';
    const { config } = loadConfig({ env, args: ['--data', data] });
    const out = (text: string): void => {
      output += text;
    };
    await announceStart({ config, port: 8_080, keyStore, now: NOW, out });
    await keyStore.close();
    return output;
  };
  return { data, run, runJson, refusal, withMembers, accept, start };
}

test('the first invitation makes the account and a link for its first member, for 24 hours', async (context) => {
  const { run, withMembers } = await openShell(context);
  const output = await run([]);
  const [, url, token = ''] = LINK.exec(output) ?? [];
  assert.match(
    output,
    /^Created the account "default"\.\nA link for the first person who opens it, to join account "default"/,
  );
  assert.match(output, /works once, for 24 hours/);
  assert.equal(url, 'http://127.0.0.1:8080');
  const found = await withMembers((members) => readInvitation(members, token, NOW));
  assert.deepEqual([found?.kind, found?.email, found?.accountName], ['first', null, 'default']);
});

test('with members in the account, a link is an ordinary invitation, for 7 days', async (context) => {
  const { run, runJson, accept } = await openShell(context);
  await accept((await runJson()).link, 'ada@example.com');
  const output = await run(['--email', 'grace@example.com']);
  assert.match(output, /^A link for grace@example\.com, to join account "default"/);
  assert.match(output, /works once, for 7 days/);
  assert.deepEqual(
    { ...(await runJson('--email', 'grace@example.com')), link: '' },
    {
      kind: 'invitation',
      account: (await runJson()).account,
      email: 'grace@example.com',
      link: '',
      expires_at: '2026-11-22T12:00:00.000Z',
    },
  );
});

test('for the e-mail of a member it is a link to a new password, and says so', async (context) => {
  const { run, runJson, accept, withMembers } = await openShell(context);
  await accept((await runJson('--account', 'acme')).link, 'Ada@example.com');
  await runJson('--account', 'bolt');
  const output = await run(['--email', 'ADA@example.com']);
  assert.match(output, /^Ada@example\.com is a member of account "acme" already\. .* new password/);
  assert.match(output, /for 24 hours/);
  await accept((await runJson('--email', 'ada@example.com')).link, null, 'a new password');
  const member = await withMembers((members) => members.findMember('ada@example.com'));
  assert.equal(await new Passwords().verify('a new password', member?.passwordHash), true);
});

test('a member of one account is not invited to another', async (context) => {
  const { runJson, accept, refusal } = await openShell(context);
  await accept((await runJson('--account', 'acme')).link, 'ada@example.com');
  const message = await refusal(['--email', 'ada@example.com', '--account', 'bolt']);
  assert.match(
    message,
    /^--email is that of a member of another account, and a person can be a member of one account only\. Leave --account out for a new password in account "acme"/,
  );
});

test('an account that is named is made when it is new; with several, one has to be named', async (context) => {
  const { run, refusal } = await openShell(context);
  assert.match(await run(['--account', 'acme']), /^Created the account "acme"\./);
  assert.ok(!(await run(['--account', 'acme'])).includes('Made'));
  assert.ok(!(await run([])).includes('Made'));
  await run(['--account', 'bolt']);
  assert.match(await refusal([]), /several accounts.*--account "acme"\n {2}--account "bolt"/s);
});

test('the link is for where people reach the server, as far as that is known', async (context) => {
  const { run } = await openShell(context);
  const urls: string[] = [];
  for (const env of [
    { SLUICE_PUBLIC_URL: 'https://sluice.example' },
    { PORT: '9000', HOST: '0.0.0.0' },
    { PORT: '0' },
  ]) {
    urls.push(LINK.exec(await run([], env))?.[1] ?? '');
  }
  assert.deepEqual(urls, ['https://sluice.example', 'http://127.0.0.1:9000', 'http://127.0.0.1:8080']);
});

test('all mistakes are reported at once, and nothing is made', async (context) => {
  const { data, refusal } = await openShell(context);
  const message = await refusal(['--emial', 'x', '--email', 'nobody', '--account', ' ', 'stray'], { PORT: 'http' });
  for (const part of [
    'unknown flag --emial; did you mean --email?',
    'PORT is "http"',
    '- --email is not an e-mail address, such as ada@example.com',
    'The account name must not be empty',
    'unexpected argument "stray"',
    'sluice help invite',
  ]) {
    assert.ok(message.includes(part), `${part}: ${message}`);
  }
  assert.ok(!existsSync(data));
});

test('the command runs as a process of its own', async (context) => {
  const { data } = await openShell(context);
  const { code, stdout, stderr } = await runSluice(['invite', '--json'], { SLUICE_DATA: data });
  assert.deepEqual([code, stderr], [0, '']);
  assert.equal((JSON.parse(stdout) as Invited).kind, 'first');
});

test('the first start prints a link once, besides the key; later ones say how to get one while there is no member', async (context) => {
  const { start, accept, withMembers } = await openShell(context);
  const first = await start();
  const [, url, token = ''] = /^ {2}Dashboard: (http\S+)\/dashboard\/welcome#([\w-]{43})$/m.exec(first) ?? [];
  assert.equal(url, 'http://127.0.0.1:8080');
  assert.match(first, /^ {4}sk_dev_/m);
  const found = await withMembers((members) => readInvitation(members, token, NOW + 86_400_000 - 1));
  assert.equal(found?.kind, 'first');
  const second = await start();
  assert.match(second, /npx sluice invite/);
  assert.ok(!second.includes('welcome#') && !second.includes('sk_dev_'));
  await accept(`#${token}`, 'ada@example.com');
  assert.ok(!(await start()).includes('invite'));
});

test('the first start of a server for production prints the link for its public address, and no key', async (context) => {
  const { start } = await openShell(context);
  const first = await start({ SLUICE_ENVIRONMENT: 'production', SLUICE_PUBLIC_URL: 'https://sluice.example' });
  assert.match(first, /^ {2}Dashboard: https:\/\/sluice\.example\/dashboard\/welcome#[\w-]{43}$/m);
  assert.match(first, /listening on http:\/\/127\.0\.0\.1:8080 /);
  assert.doesNotMatch(first, /sk_/);
  assert.match(first, /npx sluice keys create .* --env production/);
});

test('beside a running server the link is for the port that it took, whatever the settings say', async (context) => {
  const { run, data } = await openShell(context);
  const server = await startServer({ dataFolder: data });
  context.after(() => server.kill());
  const [, url] = LINK.exec(await run([])) ?? [];
  assert.equal(url, server.baseUrl);
});
