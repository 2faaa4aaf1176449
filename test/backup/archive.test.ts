/**
 * Archives with a file of more than 8 GB, for whose size a plain tar header has too few digits, of which only the start
 * is real; and one that cannot be written.
 */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import { ArchiveWriter, unpack } from '../../src/backup/files.ts';
import { MANIFEST_FILE } from '../../src/backup/manifest.ts';
import { eventually, removeFolder, temporaryFolder } from '../server.ts';

const NOON = Date.UTC(2026, 10, 15, 12);
/** Without the digits that do not fit, it is 1. */
const BYTES = 8 * 1024 ** 3 + 1;

function folderFor(t: TestContext): string {
  const folder = temporaryFolder();
  t.after(() => removeFolder(folder));
  return folder;
}

/** Its manifest alone has a size that is looked at before its contents are read. */
async function assertTooLong(archive: string, into: string): Promise<void> {
  const options = { stop: new AbortController().signal, onBytes: () => undefined, onFile: () => undefined };
  await assert.rejects(unpack(archive, into, options), /is damaged or cut short .*backup-manifest\.json is too long/);
}

suite('An archive', () => {
  test('of ours with a file of more than 8 GB is read by tar and by us', async (t) => {
    const folder = folderFor(t);
    const archive = join(folder, 'large.tar');
    const stopping = new AbortController();
    const writer = new ArchiveWriter(archive, 'tar', stopping.signal);
    async function* content(): AsyncGenerator<Uint8Array> {
      yield Buffer.from('its start');
      await eventually(
        'it is written',
        () => existsSync(archive) && statSync(archive).size % 512 === 'its start'.length,
      );
      // A hole: nothing of it is on the disk.
      truncateSync(archive, BYTES + 1_000_000);
      stopping.abort();
    }
    await assert.rejects(writer.add(MANIFEST_FILE, BYTES, NOON, content()), { name: 'AbortError' });
    await writer.closed();
    const listed = execFileSync('tar', ['-tvf', archive], { encoding: 'utf8' });
    assert.match(listed, new RegExp(` ${BYTES} .* backup-manifest\\.json\n$`));
    await assertTooLong(archive, folder);
  });

  for (const format of ['gnu', 'posix']) {
    test(`of tar (${format}) with a file of more than 8 GB is read by us`, async (t) => {
      const folder = folderFor(t);
      const file = join(folder, MANIFEST_FILE);
      writeFileSync(file, '');
      truncateSync(file, BYTES);
      const start = `tar --format=${format} -cf - -C ${folder} ${MANIFEST_FILE} | head -c 10240 > ${folder}/start.tar`;
      execFileSync('sh', ['-c', start]);
      await assertTooLong(join(folder, 'start.tar'), folder);
    });
  }

  test('does not wait for a file that cannot be written', async () => {
    const writer = new ArchiveWriter('/dev/null', 'tar', new AbortController().signal);
    await assert.rejects(async () => {
      for (let n = 0; n < 200; n++) await writer.add(`f${n}`, 100_000, NOON, [Buffer.alloc(100_000)]);
      await writer.finish();
    }, /EEXIST/);
  });
});
