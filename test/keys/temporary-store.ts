/**
 * A SQLite key store in a folder of its own, removed after the test.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { openSqliteKeyStore } from '../../src/backends/sqlite/keys.ts';
import type { KeyStore } from '../../src/keys.ts';

export async function temporaryFolder(): Promise<{ folder: string; remove: () => Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-keys-'));
  return { folder, remove: () => rm(folder, { recursive: true, force: true }) };
}

export async function temporaryKeyStore(context: TestContext): Promise<{ file: string; store: KeyStore }> {
  const { folder, remove } = await temporaryFolder();
  const file = join(folder, 'keys.db');
  const store = openSqliteKeyStore(file);
  context.after(async () => {
    await store.close();
    await remove();
  });
  return { file, store };
}
