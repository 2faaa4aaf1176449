/**
 * Log segments that lie where they were not written: copied from another installation, or
 * renamed. Their records would be processed a second time, or hide where the log ends. They are refused by name, at a
 * start and under a running server, and all continues when they are moved away.
 */

import assert from 'node:assert/strict';
import { cpSync, renameSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { listSegments } from '../../src/backends/embedded/log/segments.ts';
import { eventually, runSluice } from '../server.ts';
import { allStored, ledgerOf, send } from './ledger-of-server.ts';
import { copyIn, folderIn, launch, refusedStart, type Scope } from './scope.ts';

interface Used {
  readonly folder: string;
  readonly key: string;
  readonly segment: string;
}

/** A folder in which a server stored three requests and was stopped. */
async function usedFolder(scope: Scope): Promise<Used> {
  const folder = folderIn(scope);
  const server = await launch(scope, { dataFolder: folder });
  await send(server, server.key, 3);
  await allStored(server, server.key, 3);
  await server.stop();
  return { folder, key: server.key, segment: listSegments(join(folder, 'log'))[0]?.file ?? '' };
}

interface Put {
  /** Puts a segment where it does not belong, and returns its file. */
  readonly put: (own: string, other: string, folder: string) => string;
  readonly words: RegExp;
}

/** After all segments of the folder. */
function copied(from: string, folder: string): string {
  const file = join(folder, 'log', '0000000000000099.log');
  cpSync(from, file);
  return file;
}

const PUTS: Readonly<Record<string, Put>> = {
  'of another installation': {
    put: (_own, other, folder) => copied(other, folder),
    words: /it is of another log, local:[0-9a-f-]{36}, and this one is local:[0-9a-f-]{36}\. Move it away/,
  },
  'that was renamed': {
    put: (own, _other, folder) => copied(own, folder),
    words: /it was renamed, and was called 0000000000000001\.log\. Move it away/,
  },
};

suite('A log segment', () => {
  const shared = new AsyncDisposableStack();
  let [one, other]: Used[] = [];
  before(async () => {
    [one, other] = await Promise.all([usedFolder(shared), usedFolder(shared)]);
  });
  after(() => shared.disposeAsync());

  function copyOfOne(scope: Scope): { folder: string; key: string; put: (what: Put['put']) => string } {
    assert.ok(one && other);
    const [folder, { key, segment }, elsewhere] = [copyIn(scope, one.folder), one, other.segment];
    return { folder, key, put: (what) => what(segment, elsewhere, folder) };
  }

  for (const [what, { put, words }] of Object.entries(PUTS)) {
    test(`${what} refuses the start by name, and the start after it is moved away loses nothing`, async () => {
      await using scope = new AsyncDisposableStack();
      const { folder, key, ...copy } = copyOfOne(scope);
      const file = copy.put(put);
      const refusal = await refusedStart({ dataFolder: folder });
      assert.match(refusal, words);
      assert.ok(refusal.includes(file), refusal);
      const doctor = await runSluice(['doctor'], { SLUICE_DATA: folder, SLUICE_DISK_FREE_MIN: '0' });
      assert.equal(doctor.code, 1, doctor.stdout);
      assert.match(doctor.stdout.replaceAll(/\s+/g, ' '), words);
      const backup = await runSluice(['backup', '--to', join(folder, '..', `${basename(folder)}-backup`)], {
        SLUICE_DATA: folder,
      });
      assert.equal(backup.code, 1);
      assert.match(backup.stderr.replaceAll(/\s+/g, ' '), words);
      rmSync(file);
      const again = await launch(scope, { dataFolder: folder });
      await send(again, key, 2);
      await allStored(again, key, 5);
    });

    test(`${what} is not processed by a server that runs, which says so and continues when it is moved away`, async () => {
      await using scope = new AsyncDisposableStack();
      const { folder, key, ...copy } = copyOfOne(scope);
      const server = await launch(scope, { dataFolder: folder });
      await send(server, key, 1);
      await allStored(server, key, 4);
      const file = copy.put(put);
      await send(server, key, 2);
      await eventually('the processor says which file it is', () => {
        return words.test(server.stderr()) && server.stderr().includes(file);
      });
      assert.equal((await ledgerOf(server, key)).balanced, false);
      rmSync(file);
      await allStored(server, key, 6);
    });
  }

  test('of another copy of the installation refuses the start before any request is accepted, and doctor says so', async () => {
    await using scope = new AsyncDisposableStack();
    const [own, twin] = [copyOfOne(scope), copyOfOne(scope)];
    const newest = (folder: string) => listSegments(join(folder, 'log')).at(-1)?.file ?? '';
    await Promise.all(
      [own, twin].map(async ({ folder, key }) => {
        const server = await launch(scope, { dataFolder: folder });
        await send(server, key, 2);
        await server.stop();
      }),
    );
    const kept = `${newest(own.folder)}-kept`;
    assert.equal(basename(newest(own.folder)), basename(newest(twin.folder)));
    cpSync(newest(own.folder), kept);
    cpSync(newest(twin.folder), newest(own.folder));
    const words = new RegExp(`${newest(own.folder)} does not belong there: .*another copy of this installation`);
    assert.match(await refusedStart({ dataFolder: own.folder }), words);
    const doctor = await runSluice(['doctor'], { SLUICE_DATA: own.folder, SLUICE_DISK_FREE_MIN: '0' });
    assert.match(doctor.stdout.replaceAll(/\s+/g, ' '), words);
    renameSync(kept, newest(own.folder));
    const foreign = copied(one?.segment ?? '', own.folder);
    const refusal = await refusedStart({ dataFolder: own.folder, args: ['--edges', '2'] });
    assert.match(refusal, /it was renamed, and was called 0000000000000001\.log/);
    assert.doesNotMatch(refusal, /"listening"/);
    rmSync(foreign);
    const again = await launch(scope, { dataFolder: own.folder });
    await allStored(again, own.key, 5);
  });
});
