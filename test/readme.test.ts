/** Every snippet of the README is run as it is printed, in order, in one shell, against a server started as it says. */

import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { makeKey } from '../src/keys/format.ts';
import { eventually, removeFolder, temporaryFolder } from './server.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const README = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
const COMMANDS = readFileSync(new URL('../docs/commands.md', import.meta.url), 'utf8');
const run = promisify(execFile);

interface Snippet {
  readonly language: string;
  readonly text: string;
}

const snippets: Snippet[] = Array.from(README.matchAll(/^```(\w+)\n(.*?)^```$/gms), ([, language = '', text = '']) => ({
  language,
  text,
}));

const INSTALL_AND_START = 'npm ci && npm start\n';
const INSTALL_AND_TEST = 'npm ci && npm test\n';

suite('The README', () => {
  const dataFolder = temporaryFolder();
  let server: ChildProcess;
  let stdout = '';
  let port = '';
  let firstKey = '';

  before(async () => {
    // `npm ci` is how the checkout that runs this test was set up.
    server = spawn('npm', ['start'], {
      cwd: ROOT,
      env: { ...process.env, PORT: '0', SLUICE_DATA: dataFolder, SLUICE_DRAIN: '0' },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    server.stdout?.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    await eventually('npm start prints the curl line', () => stdout.includes('More keys:'), 60_000);
    port = /http:\/\/127\.0\.0\.1:(\d+)/.exec(stdout)?.[1] ?? '';
    firstKey = /sk_dev_[0-9A-Za-z]{38}/.exec(stdout)?.[0] ?? '';
  });

  after(async () => {
    removeFolder(dataFolder);
  });

  async function shell(script: string): Promise<string> {
    const env = { ...process.env, SLUICE_DATA: dataFolder };
    const result = await run('bash', ['-euo', 'pipefail', '-c', script], { cwd: ROOT, env });
    return result.stdout;
  }

  test('shows the two commands, and only snippets that this test knows how to run', () => {
    assert.equal(snippets[0]?.text, INSTALL_AND_START);
    assert.equal(snippets.at(-1)?.text, INSTALL_AND_TEST);
    assert.deepEqual(
      snippets.filter(({ language }) => !['sh', 'json', 'text'].includes(language)),
      [],
    );
  });

  test('shows the start message, shortened', () => {
    const shown = snippets[1]?.text.split('\n').map((line) => line.replace(/(?:#\w+|sk_dev_\w+)?…$/, '').trim()) ?? [];
    assert.ok(shown.length > 5);
    const printed = stdout.replaceAll(`127.0.0.1:${port}`, '127.0.0.1:8080');
    for (const line of shown) assert.ok(printed.includes(line), line);
  });

  test('sends events without a time of their own, so that they count as of today', () => {
    const requests = snippets.filter(({ language, text }) => language === 'sh' && text.includes('/ingest/events'));
    assert.equal(requests.length, 3);
    for (const { text } of requests) assert.doesNotMatch(text, /timestamp/);
  });

  test('the curl line of the first start, pasted, gives 202 and a trace_id', async () => {
    const line = stdout.split('\n').find((text) => text.startsWith('curl '));
    assert.ok(line);
    const response = await shell(line);
    assert.match(response, /^HTTP\/1\.1 202 /);
    assert.match(response, /"trace_id":"[0-9a-f-]{36}","users_accepted":1,"users_rejected":0,"errors":\[\]/);
  });

  test('every shell snippet runs as printed and prints what is shown below it', async () => {
    // One shell for all of them: variables of one snippet are used by the next.
    let script = '';
    const expected: Snippet[] = [];
    for (const [index, { language, text }] of snippets.entries()) {
      if (language !== 'sh' || text === INSTALL_AND_START || text === INSTALL_AND_TEST) continue;
      const command = text.replaceAll('127.0.0.1:8080', `127.0.0.1:${port}`).replace('sk_dev_…', firstKey);
      const next = snippets[index + 1];
      if (next === undefined || next.language === 'sh') script += `{ ${command}} > /dev/null\n`;
      else {
        expected.push(next);
        script += `${command}echo; echo ----\n`;
      }
      if (text.includes('/ingest/events')) script += untilProcessed(port);
    }
    const output = await shell(script);
    const responses = output.split('\n----\n');
    assert.equal(responses.length, expected.length + 1);
    for (const [index, { language, text }] of expected.entries()) {
      const response = responses[index] ?? '';
      if (language === 'json') assert.deepEqual(JSON.parse(steady(response)), JSON.parse(steady(text)));
      // An excerpt.
      else assert.ok(steady(response.slice(response.indexOf(text.split('\n', 1)[0] ?? ''))).startsWith(steady(text)));
    }
    const metrics = await shell(`curl -s http://127.0.0.1:${port}/metrics`);
    assert.match(metrics, /^sluice_users_accepted_total 4$/m);
  });

  test('SIGTERM to npm ends the server: nothing is left behind on the port or in the folder', async () => {
    const ended = once(server, 'close');
    // npm alone, as a service manager would; not its process group.
    server.kill('SIGTERM');
    await ended;
    await eventually('the port is free', async () => {
      const response = await fetch(`http://127.0.0.1:${port}/livez`).catch(() => null);
      return response === null;
    });
  });

  test('the regular expression for leaked keys, in docs/commands.md, finds keys of every kind', () => {
    const pattern = new RegExp(/^```text\n(\(sk_.*)\n```$/m.exec(COMMANDS)?.[1] ?? '$^');
    for (const key of [
      makeKey('secret', 'production'),
      makeKey('secret', 'development'),
      makeKey('publishable', 'production'),
    ]) {
      assert.equal(pattern.exec(`a line with "${key}" in it`)?.[0], key);
    }
  });
});

/** A person takes a moment to type the next line; a script must wait for the processor. */
function untilProcessed(port: string): string {
  const ledger = `curl -s http://127.0.0.1:${port}/ledger -H "Authorization: Bearer $SLUICE_KEY"`;
  return `for i in $(seq 100); do ${ledger} | grep -q '"pending":[1-9]' && sleep 0.1 || break; done\n`;
}

/** Ids and times differ from run to run; which of them are the same does not. */
function steady(response: string): string {
  const ids = new Map<string, string>();
  return response
    .replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, (id) => {
      if (!ids.has(id)) ids.set(id, `id ${ids.size + 1}`);
      return ids.get(id) ?? '';
    })
    .replaceAll(/key_[0-9A-Za-z]{12}/g, 'a key')
    .replaceAll(/\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{3}Z)?/g, 'a time');
}
