/** Every snippet of docs/plans.md is run as it is printed, in order, in one folder, and prints what is shown. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { FORMATS, SCHEMA_KEYWORDS } from '../../src/plans/schema.ts';
import { useServer } from '../edge/fixture.ts';
import { MAIN, removeFolder, temporaryFolder } from '../server.ts';

const GUIDE = readFileSync(fileURLToPath(new URL('../../docs/plans.md', import.meta.url)), 'utf8');
const run = promisify(execFile);

const snippets = Array.from(GUIDE.matchAll(/^```(sh|text|json)\n(.*?)^```$/gms), ([, language = '', text = '']) => ({
  language,
  text,
}));

suite('The guide to tracking plans', () => {
  const server = useServer();

  test('shows what the commands and the server respond with', async () => {
    const folder = temporaryFolder();
    const sluice = `sluice() { "${process.execPath}" "${MAIN}" "$@"; }\n`;
    const commands = snippets.filter(({ language }) => language === 'sh').map(({ text }) => `${text}echo; echo ----\n`);
    const env = { ...process.env, SLUICE_URL: server().baseUrl, SLUICE_KEY: server().key };
    const options = { env, cwd: folder };
    const { stdout } = await run('bash', ['-euo', 'pipefail', '-c', sluice + commands.join('')], options);
    removeFolder(folder);
    const responses = stdout.split('\n----\n');
    let command = -1;
    let compared = 0;
    for (const { language, text } of snippets) {
      if (language === 'sh') {
        command++;
        continue;
      }
      assert.equal(steady(responses[command] ?? '', language), steady(text, language));
      compared++;
    }
    assert.equal(compared, 5);
  });

  test('names every keyword and format that a plan may use', () => {
    for (const name of [...SCHEMA_KEYWORDS, ...Object.keys(FORMATS)]) {
      assert.ok(GUIDE.includes(`\`${name}\``) || GUIDE.includes(`"${name}"`), name);
    }
  });
});

function steady(response: string, language: string): string {
  const text = language === 'json' ? JSON.stringify(JSON.parse(response)) : response.trim();
  return text.replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, 'id');
}
