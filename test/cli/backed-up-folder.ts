/**
 * The data folder that the tests of `sluice backup` and `sluice restore` work on, backups of it, and ways to damage them.
 * It is filled once for each test file that imports this, before its tests; each test has a copy.
 */

import assert from 'node:assert/strict';
import { cpSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, type TestContext } from 'node:test';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { hashFile } from '../../src/backup/files.ts';
import { type Manifest, MANIFEST_FILE } from '../../src/backup/manifest.ts';
import { keyFileOf } from '../../src/data-folder/files.ts';
import { createKey, newAccount } from '../../src/keys/manage.ts';
import { removeFolder, temporaryFolder, user } from '../server.ts';
import { backup } from './backing-up.ts';
import { type DataFolder, NOW, openDataFolder } from './data-shell.ts';

const KEY = {
  name: 'shop',
  kind: 'secret',
  environment: 'development',
  origins: [],
  expiresAt: null,
  now: NOW,
} as const;
export const FORMS = ['folder', 'plain.tar', 'gzip.tar.gz', 'zstd.tar.zst'] as const;

/** Three segments of the log, of which the last is not processed; a key. */
export function filledFolder(t: TestContext): DataFolder {
  const folder = openDataFolder(t);
  cpSync(original, folder.data, { recursive: true });
  return folder;
}

/** Filled once; every test has a copy. */
const original = temporaryFolder();
after(() => removeFolder(original));
before(async (t) => {
  const folder = openDataFolder(t as TestContext);
  await folder.send([{ users: [user('ada')] }, { users: [user('bob')] }]);
  await folder.send([{ users: [user('cleo'), user('dora')] }]);
  await folder.append([{ users: [user('emil')] }]);
  const keyStore = openSqliteKeyStore(keyFileOf(folder.data));
  const { id } = await keyStore.ensureAccount(newAccount('default', NOW));
  await createKey(keyStore, { ...KEY, accountId: id });
  await keyStore.close();
  cpSync(folder.data, original, { recursive: true });
});

export function folderFor(t: TestContext): string {
  const folder = temporaryFolder();
  t.after(() => removeFolder(folder));
  return folder;
}

export async function backedUp(t: TestContext, form: string): Promise<{ data: string; target: string; place: string }> {
  const { data } = filledFolder(t);
  const place = folderFor(t);
  const target = join(place, form);
  const { code, err } = await backup(['--to', target, '--data', data]);
  assert.equal(code, 0, err);
  return { data, target, place };
}

export function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => statSync(join(folder, path)).isFile())
    .sort();
}

export function manifestOf(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, MANIFEST_FILE), 'utf8')) as Manifest;
}

/** As if it had been written like that: hashes and sizes are those of the files as they are now. */
export async function rewriteManifest(folder: string, changes: Partial<Manifest> = {}): Promise<void> {
  const options = { stop: new AbortController().signal, onBytes: () => undefined };
  const files = [];
  for (const path of filesIn(folder)) {
    if (path !== MANIFEST_FILE) files.push(await hashFile(folder, path, options));
  }
  writeFileSync(join(folder, MANIFEST_FILE), JSON.stringify({ ...manifestOf(folder), ...changes, files }));
}

export function flipByte(file: string, at: number): void {
  const bytes = readFileSync(file);
  bytes[at] = (bytes[at] ?? 0) ^ 0x40;
  writeFileSync(file, bytes);
}
