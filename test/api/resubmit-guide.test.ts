/** Every snippet of docs/resubmit.md is run as it is printed, in order, in one shell, and prints what is shown. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { suite, test } from 'node:test';
import { promisify } from 'node:util';
import { useServer } from '../edge/fixture.ts';

const GUIDE = readFileSync(new URL('../../docs/resubmit.md', import.meta.url), 'utf8');
const run = promisify(execFile);
const SEPARATOR = '\n----\n';

/** A person takes a moment to type the next line; a script must wait for the processor. */
const UNTIL_PROCESSED = `for i in $(seq 200); do ask "/traces/$TRACE" | grep -q '"status":"processed"' && break || sleep 0.1; done
for i in $(seq 200); do ask /jobs | grep -q '"status":"running"' && sleep 0.1 || break; done
`;

suite('The guide to resubmitting', () => {
  const server = useServer();

  test('shows what the server responds with', async () => {
    const snippets = Array.from(
      GUIDE.matchAll(/^```(sh|text|json)\n(.*?)^```$/gms),
      ([, language = '', text = '']) => ({
        language,
        text,
      }),
    );
    const commands = snippets.filter(({ language }) => language === 'sh');
    const script = commands.map(({ text }) => `${text}${UNTIL_PROCESSED}echo; echo ----\n`);
    const env = { ...process.env, SLUICE_URL: server().baseUrl, SLUICE_KEY: server().key };
    const { stdout } = await run('bash', ['-euo', 'pipefail', '-c', script.join('')], { env });
    const responses = stdout.split(SEPARATOR);
    assert.equal(responses.length, commands.length + 1);
    let command = -1;
    let compared = 0;
    for (const { language, text } of snippets) {
      if (language === 'sh') {
        command += 1;
        continue;
      }
      const compact = (given: string): string =>
        language === 'json' ? JSON.stringify(JSON.parse(given)) : given.trim();
      assert.equal(compact(responses[command] ?? ''), compact(text));
      compared += 1;
    }
    assert.equal(compared, 6);
  });
});
