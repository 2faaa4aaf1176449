/**
 * `sluice import` without --url: it finds the server on the data folder by its lock and its address file, and says so
 * when none is running there.
 */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { runImport } from '../../src/cli/import.ts';
import { serverUrlFileOf } from '../../src/data-folder/files.ts';
import { removeFolder, startServer, temporaryFolder } from '../server.ts';
import { refusal, run, testShell } from './data-shell.ts';

const USER = '{"identifiers":{"user_id":"ada"},"events":[{"event_name":"seen"}]}\n';

suite('An import without the address of a server', () => {
  test('goes to the one that is running on the data folder, whatever its port, and says which', async (context) => {
    const dataFolder = temporaryFolder();
    context.after(() => removeFolder(dataFolder));
    const server = await startServer({ dataFolder });
    context.after(() => server.stop());
    const file = join(dataFolder, 'users.ndjson');
    writeFileSync(file, USER);
    const env = { SLUICE_DATA: dataFolder, SLUICE_KEY: server.key };
    const { code, out, err } = await run(runImport, [file], testShell({ env, now: Date.now }));
    assert.equal(code, 0);
    assert.match(out, /^1 user accepted/);
    assert.ok(err.includes(`Sending to ${server.baseUrl}, the server on this data folder.\n`), err);
    const byFlag = testShell({ env: { SLUICE_KEY: server.key }, now: Date.now });
    assert.equal((await run(runImport, [file, '--data', dataFolder, '--restart'], byFlag)).code, 0);

    const noKey = await refusal(runImport, [file], testShell({ env: { SLUICE_DATA: dataFolder } }));
    assert.match(noKey, /no API key given; expected --key KEY, or SLUICE_KEY in the environment/);
    assert.doesNotMatch(noKey, /no server/);
  });

  test('is refused where no server is running, even if something else listens on the port of the last one', async (context) => {
    const dataFolder = temporaryFolder();
    context.after(() => removeFolder(dataFolder));
    const file = join(dataFolder, 'users.ndjson');
    writeFileSync(file, USER);
    const shell = testShell({ env: { SLUICE_DATA: dataFolder, SLUICE_KEY: 'sk_dev_x' } });
    const none = /no server is running on the data folder .*; start one \(sluice serve\).*--url URL/;
    assert.match(await refusal(runImport, [file], shell), none);

    let connections = 0;
    const other = createServer((socket) => {
      connections++;
      socket.destroy();
    }).listen(0, '127.0.0.1');
    context.after(() => other.close());
    await once(other, 'listening');
    const address = other.address();
    assert.ok(address !== null && typeof address === 'object');
    writeFileSync(serverUrlFileOf(dataFolder), `http://127.0.0.1:${address.port}\n`);
    assert.match(await refusal(runImport, [file, '--retry-timeout', '1ms'], shell), none);
    assert.equal(connections, 0);
  });

  test('reports wrong settings with the other mistakes', async () => {
    const words = await refusal(runImport, [], testShell({ env: { PORT: 'http' } }));
    assert.match(words, /no file given/);
    assert.match(words, /PORT is "http"/);
    assert.match(words, /no API key given/);
  });
});
