/** Every snippet of docs/check.md is run as it is printed, in order, in one shell, and prints what is shown. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { after, suite, test } from 'node:test';
import { promisify } from 'node:util';
import { useServer } from '../edge/fixture.ts';
import { eventually, MAIN, post, PROGRAM_ENV, removeFolder, temporaryFolder } from '../server.ts';
import { at, parseYaml } from '../yaml.ts';

const GUIDE = readFileSync(new URL('../../docs/check.md', import.meta.url), 'utf8');
const run = promisify(execFile);
const SEPARATOR = '\n----\n';

const snippets = Array.from(GUIDE.matchAll(/^```(\w+)\n(.*?)^```$/gms), ([, language = '', text = '']) => ({
  language,
  text,
}));

/** The checkout's program, as a package that is installed would be found. */
const NPX = `npx() { shift; "${process.execPath}" "${MAIN}" "$@"; }\n`;

suite('The guide to checks', () => {
  const server = useServer();
  const folder = temporaryFolder();
  after(() => removeFolder(folder));

  test('shows what the commands print and the server responds with, and a workflow that fails', async () => {
    const { key, baseUrl } = server();
    const visitor = { identifiers: { anon_id: 'anon-7f3c' }, user_properties: { plan: 'free' } };
    await post(server(), key, { users: [{ ...visitor, events: [{ event_name: 'seen' }] }] });
    await eventually('the visitor is known', async () => {
      const { ok } = await fetch(`${baseUrl}/profiles?anon_id=anon-7f3c`, {
        headers: { authorization: `Bearer ${key}` },
      });
      return ok ? true : undefined;
    });
    const env = { ...process.env, ...PROGRAM_ENV, SLUICE_URL: baseUrl, SLUICE_KEY: key };
    const shell = (script: string) => run('bash', ['-euo', 'pipefail', '-c', NPX + script], { env, cwd: folder });
    const commands = snippets.filter(({ language }) => language === 'sh').map(({ text }) => text);
    const { stdout } = await shell(commands.map((text) => `${text}echo; echo ----\n`).join(''));
    const outputs = stdout.split(SEPARATOR);
    let command = -1;
    let compared = 0;
    for (const { language, text } of snippets) {
      if (language === 'sh') command++;
      else if (language === 'text') assert.equal(outputs[command]?.trim(), text.trim());
      else if (language === 'json') assert.deepEqual(withoutIds(outputs[command] ?? ''), withoutIds(text));
      if (language === 'text' || language === 'json') compared++;
    }
    assert.equal(compared, 3);

    const workflow = snippets.find(({ language }) => language === 'yaml')?.text ?? '';
    const steps = at(parseYaml(workflow)[0], 'jobs', 'check', 'steps') as { run?: string }[];
    const step = steps.at(-1)?.run ?? '';
    assert.match(step, /^npx sluice check /);
    await assert.rejects(shell(step), { code: 2 });
  });
});

function withoutIds(text: string): unknown {
  return JSON.parse(text.replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, 'id'));
}
