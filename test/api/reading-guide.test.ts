/** Every snippet of docs/reading.md is run as it is printed, in order, in one shell, and prints what is shown. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { suite, test } from 'node:test';
import { promisify } from 'node:util';
import { useServer } from '../edge/fixture.ts';

const GUIDE = readFileSync(new URL('../../docs/reading.md', import.meta.url), 'utf8');
const run = promisify(execFile);
const SEPARATOR = '\n----\n';

/** A person takes a moment to type the next line; a script must wait for the processor. */
const UNTIL_PROCESSED = `for i in $(seq 100); do ask /ledger | grep -q '"pending":[1-9]' && sleep 0.1 || break; done\n`;

interface Snippet {
  readonly language: string;
  readonly text: string;
}

const snippets: Snippet[] = Array.from(GUIDE.matchAll(/^```(\w+)\n(.*?)^```$/gms), ([, language = '', text = '']) => ({
  language,
  text,
}));

suite('The guide to reading back', () => {
  const server = useServer();

  test('shows what the server responds with', async () => {
    const commands = snippets.filter(({ language }) => language === 'sh');
    const script = commands.map(({ text }) => {
      const wait = text.includes('send()') ? UNTIL_PROCESSED : '';
      return `${text}${wait}echo; echo ----\n`;
    });
    const env = { ...process.env, SLUICE_URL: server().baseUrl, SLUICE_KEY: server().key };
    const { stdout } = await run('bash', ['-euo', 'pipefail', '-c', script.join('')], { env });
    const responses = stdout.split(SEPARATOR);
    assert.equal(responses.length, commands.length + 1);
    let compared = 0;
    let command = -1;
    for (const { language, text } of snippets) {
      if (language === 'sh') {
        command++;
        continue;
      }
      assert.equal(steady(responses[command] ?? '', language), steady(text, language));
      compared++;
    }
    assert.equal(compared, 14);
  });
});

/** Ids, keys, times and cursors differ from run to run; which of them are the same does not. */
function steady(response: string, language: string): string {
  const compact = language === 'json' ? JSON.stringify(JSON.parse(withBigNumbers(response))) : response.trim();
  const ids = new Map<string, string>();
  return compact
    .replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, (id) => {
      const name = ids.get(id) ?? `id ${ids.size + 1}`;
      ids.set(id, name);
      return name;
    })
    .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, 'time')
    .replaceAll(/key_[0-9A-Za-z]{12}/g, 'key')
    .replaceAll(/"next_cursor":"[^"]+"/g, '"next_cursor":"cursor"');
}

/** As texts, since JSON.parse would round them. */
function withBigNumbers(json: string): string {
  return json.replaceAll(/:\s*(\d{16,})/g, ':"$1"');
}
