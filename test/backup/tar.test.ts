/**
 * Tar archives as this program writes them are read by tar, and those of tar by this program; sizes beyond 8 GB are
 * written as other programs read them; what is cut or damaged is refused.
 */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  closeSync,
  createWriteStream,
  ftruncateSync,
  mkdirSync,
  openSync,
  readFileSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { suite, test, type TestContext } from 'node:test';
import { readTar, TarError, tarHeader, TarWriter } from '../../src/backup/tar.ts';
import { removeFolder, temporaryFolder } from '../server.ts';

const NOON = Date.UTC(2026, 10, 15, 12);
const CONTENTS = { empty: '', small: 'a', block: 'b'.repeat(512), 'log/0/long': 'c'.repeat(1_000_000) };

function folderFor(t: TestContext): string {
  const folder = temporaryFolder();
  t.after(() => removeFolder(folder));
  return folder;
}

async function writeAll(contents: Readonly<Record<string, string>>): Promise<Buffer> {
  const stream = new PassThrough();
  const all = buffer(stream);
  const writer = new TarWriter(stream);
  for (const [name, text] of Object.entries(contents)) {
    await writer.add(name, text.length, NOON, Readable.from(text === '' ? [] : [Buffer.from(text)]));
  }
  await writer.finish();
  return all;
}

/** In chunks of a size that fits nothing. */
async function readAll(archive: Buffer, chunkBytes = 777): Promise<Record<string, string>> {
  const chunks: Buffer[] = [];
  for (let at = 0; at < archive.byteLength; at += chunkBytes) chunks.push(archive.subarray(at, at + chunkBytes));
  const found: Record<string, string> = {};
  for await (const { name, content } of readTar(Readable.from(chunks))) {
    const parts: Uint8Array[] = [];
    for await (const part of content) parts.push(part);
    found[name] = Buffer.concat(parts).toString();
  }
  return found;
}

suite('A tar archive', () => {
  test('is read back as it was written, in chunks of any size', async () => {
    const archive = await writeAll(CONTENTS);
    for (const chunkBytes of [100, 777, 512, 1 << 20]) assert.deepEqual(await readAll(archive, chunkBytes), CONTENTS);
  });

  test('of ours is read by tar, and one of tar by us', async (t) => {
    const folder = folderFor(t);
    writeFileSync(join(folder, 'a.tar'), await writeAll(CONTENTS));
    mkdirSync(join(folder, 'out'));
    execFileSync('tar', ['-xf', join(folder, 'a.tar'), '-C', join(folder, 'out')]);
    for (const [name, text] of Object.entries(CONTENTS)) {
      assert.equal(readFileSync(join(folder, 'out', name), 'utf8'), text);
    }
    for (const format of ['gnu', 'ustar', 'posix']) {
      const file = join(folder, `${format}.tar`);
      execFileSync('tar', [`--format=${format}`, '-cf', file, '-C', join(folder, 'out'), '.']);
      assert.deepEqual(await readAll(readFileSync(file)), CONTENTS);
    }
  });

  test('holds files of more than 8 GB, as tar does', async (t) => {
    const bytes = 9 * 1024 ** 3;
    const file = join(folderFor(t), 'large.tar');
    const descriptor = openSync(file, 'w');
    writeSync(descriptor, tarHeader('store.db', bytes, NOON));
    // A hole: nothing of it is on the disk.
    ftruncateSync(descriptor, 512 + bytes + 1_024);
    closeSync(descriptor);
    const listed = execFileSync('tar', ['-tvf', file], { encoding: 'utf8' });
    assert.match(listed, new RegExp(` ${bytes} .* store\\.db`));
    for await (const { name, bytes: found } of readTar(Readable.from([tarHeader('store.db', bytes, NOON)]))) {
      assert.deepEqual([name, found], ['store.db', bytes]);
      break;
    }
  });

  test('that is cut short, damaged or none at all is refused', async () => {
    const archive = await writeAll(CONTENTS);
    for (const bytes of [0, 100, 512, 700, 2_000, archive.byteLength - 1_024]) {
      await assert.rejects(readAll(archive.subarray(0, bytes)), TarError, `${bytes} bytes`);
    }
    for (const at of [0, 124, 148, 156, 300]) {
      const damaged = Buffer.from(archive);
      damaged[at] = (damaged[at] ?? 0) ^ 1;
      await assert.rejects(readAll(damaged), TarError, `byte ${at}`);
    }
    await assert.rejects(readAll(Buffer.from('no archive at all '.repeat(100))), TarError);
  });

  test('does not wait for a disk that failed', async () => {
    const writer = new TarWriter(createWriteStream('/dev/full'));
    await assert.rejects(async () => {
      for (let n = 0; n < 100; n++) await writer.add(`f${n}`, 100_000, NOON, Readable.from([Buffer.alloc(100_000)]));
      await writer.finish();
    }, /ENOSPC/);
  });
});
