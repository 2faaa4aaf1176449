/**
 * A SQLite key store in a folder of its own, removed after the test. It is a copy of an empty one: making the tables
 * takes longer than most tests.
 */

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import type { KeyStore } from '../../src/keys.ts';

export async function temporaryFolder(): Promise<{ folder: string; remove: () => Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-keys-'));
  return { folder, remove: () => rm(folder, { recursive: true, force: true }) };
}

export async function temporaryKeyStore(
  context: Pick<TestContext, 'after'>,
): Promise<{ file: string; store: KeyStore }> {
  const { folder, remove } = await temporaryFolder();
  const file = join(folder, 'keys.db');
  empty ??= emptyKeyStore();
  await writeFile(file, await empty, { mode: 0o600 });
  const store = openSqliteKeyStore(file);
  context.after(async () => {
    await store.close();
    await remove();
  });
  return { file, store };
}

let empty: Promise<Buffer> | undefined;

async function emptyKeyStore(): Promise<Buffer> {
  const { folder, remove } = await temporaryFolder();
  const file = join(folder, 'keys.db');
  await openSqliteKeyStore(file).close();
  const bytes = await readFile(file);
  await remove();
  return bytes;
}
