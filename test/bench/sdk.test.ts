/** The benchmark sdk in its short form, without the SDKs of others: it delivers with ours, and says what it did not measure. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { removeFolder, temporaryFolder } from '../server.ts';

const RUN = fileURLToPath(new URL('../../bench/run.ts', import.meta.url));

test('the short form of the benchmark sdk downloads nothing and names what it leaves out', async (context) => {
  const folder = temporaryFolder();
  context.after(() => removeFolder(folder));
  const { stdout } = await promisify(execFile)(process.execPath, [RUN, 'sdk', '--short', '--data', folder], {
    env: { ...process.env, XDG_CACHE_HOME: folder },
  });
  assert.match(stdout, /@segment\/analytics-node and posthog-node are NOT measured/);
  assert.match(stdout, /^\| sdk, rate +\| [\d,]+ events\/s +\| not measured/m);
  assert.match(stdout, /^\| sdk, to Sluice, bytes +\| [\d,]+ bytes an event +\| not measured/m);
});
