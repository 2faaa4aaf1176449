/**
 * Single files of a data folder put back from an earlier copy, as an operator does in a hurry: `store.db` or `keys.db` beside
 * the write-ahead log of a later moment, or the other way round. SQLite would mix the two. Servers and commands refuse, change
 * nothing, and work again once the files belong together.
 */

import assert from 'node:assert/strict';
import { copyFileSync, cpSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { tieDataFolder } from '../../src/backends/embedded/installation.ts';
import { eventually, post, runSluice, type TestServer, user } from '../server.ts';
import { folderIn, launch, refusedStart, type Scope } from './scope.ts';

const REQUESTS = 5;

async function send(server: TestServer, key: string): Promise<void> {
  for (let n = 0; n < REQUESTS; n += 1) {
    assert.equal((await post(server, key, { users: [user(`person-${n}`)] })).status, 202);
  }
  await eventually('all is processed', async () => {
    const response = await fetch(`${server.baseUrl}/ledger`, { headers: { authorization: `Bearer ${key}` } });
    const { totals } = (await response.json()) as { totals: { events: Record<string, number> } };
    return totals.events['pending'] === 0;
  });
}

function assertRefused(dataFolder: string, name: string): void {
  const files = [join(dataFolder, name), join(dataFolder, `${name}-wal`)];
  const before = files.map((file) => readFileSync(file));
  assert.throws(() => tieDataFolder(dataFolder), new RegExp(`${name}-wal are of different moments`));
  assert.deepEqual(
    files.map((file) => readFileSync(file)),
    before,
  );
}

suite('A database and a write-ahead log of another moment', () => {
  test('are refused and left as they are, until they belong together', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = join(folderIn(scope), 'data');
    const [earlier, later] = [join(folderIn(scope), 'data'), join(folderIn(scope), 'data')];
    const first = await launch(scope, { dataFolder });
    const { key } = first;
    await send(first, key);
    await first.kill('SIGKILL');
    cpSync(dataFolder, earlier, { recursive: true });
    const second = await launch(scope, { dataFolder });
    const create = ['keys', 'create', '--name', 'second', '--kind', 'secret', '--env', 'production'];
    assert.equal((await runSluice([...create, '--data', dataFolder])).code, 0);
    await send(second, key);
    await second.kill('SIGKILL');
    cpSync(dataFolder, later, { recursive: true });

    for (const name of ['store.db', 'keys.db']) {
      assert.ok(statSync(join(later, `${name}-wal`)).size > 0, 'the test needs a write-ahead log');
      copyFileSync(join(earlier, name), join(dataFolder, name));
      assertRefused(dataFolder, name);
      if (name === 'store.db') await assertCommandsRefuse(scope, dataFolder);
      rmSync(dataFolder, { recursive: true });
      cpSync(later, dataFolder, { recursive: true });
    }

    // All is as it was, so a start copies the write-ahead logs into the files, and the old ones belong to nothing any more.
    tieDataFolder(dataFolder);
    for (const name of ['store.db', 'keys.db']) {
      copyFileSync(join(earlier, `${name}-wal`), join(dataFolder, `${name}-wal`));
      assertRefused(dataFolder, name);
      rmSync(join(dataFolder, `${name}-wal`));
    }

    const third = await launch(scope, { dataFolder });
    await send(third, key);
    const doctor = await runSluice(['doctor', '--deep', '--data', dataFolder]);
    assert.equal(doctor.code, 0, doctor.stdout);
  });
});

async function assertCommandsRefuse(scope: Scope, dataFolder: string): Promise<void> {
  const words = /store\.db-wal are of different moments/;
  assert.match(await refusedStart({ dataFolder }), words);
  const doctor = await runSluice(['doctor', '--data', dataFolder, '--json']);
  assert.equal(doctor.code, 1);
  assert.equal(doctor.stdout.match(new RegExp(words, 'g'))?.length, 1, 'said once, however many checks need the store');
  const backup = await runSluice(['backup', '--data', dataFolder, '--to', join(folderIn(scope), 'backup')]);
  assert.equal(backup.code, 1);
  assert.match(backup.stderr, words);
}
