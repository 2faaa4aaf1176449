/**
 * Recreates accounts that the data of a folder belongs to and that `keys.db` does not have: it is lost
 * (`data-folder/lost-keys.ts`), or an older copy was put back. Their ids are in the store and in the log. Their names
 * are lost, and so are keys and members. For a folder without a running server.
 */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { keyFileOf, logFolderOf, storeFileOf } from '../../data-folder/files.ts';
import { OperatorError } from '../../errors.ts';
import { LOCAL_PARTITION } from '../../log.ts';
import { tenantPartsOf } from '../../model.ts';
import { hasLostKeys } from '../../data-folder/lost-keys.ts';
import type { KeyStore } from '../../keys.ts';
import { lockHolderOf } from './folder-lock.ts';
import { openSqliteKeyStore } from './keys.ts';
import { textsIn } from './database.ts';
import { openEmbeddedLogReader } from './log/reader.ts';
import { openStoreFile } from './store/schema.ts';

/** For a single account; several are named by their ids. */
const ONLY_NAME = 'default';
const HEADERS_PER_READ = 10_000;

export async function replaceLostKeys(dataFolder: string, now: number): Promise<KeyStore> {
  const areAllLost = hasLostKeys(dataFolder);
  if (areAllLost) assertStopped(dataFolder);
  const ids = [...(await accountIds(dataFolder))].sort();
  const store = openSqliteKeyStore(keyFileOf(dataFolder));
  try {
    const known = new Set((await store.accounts()).map(({ id }) => id));
    const lost = ids.filter((id) => !known.has(id));
    if (!areAllLost && lost.length === 0) {
      throw new OperatorError(
        `${resolve(dataFolder)} has not lost its keys: keys.db has every account of the data there, or there is no data yet. ` +
          'Leave --replace-lost-keys out.',
      );
    }
    assertStopped(dataFolder);
    for (const id of lost) await store.ensureAccount({ id, name: ids.length === 1 ? ONLY_NAME : id, createdAt: now });
    return store;
  } catch (error) {
    await store.close();
    throw error;
  }
}

function assertStopped(dataFolder: string): void {
  if (!lockHolderOf(dataFolder).isHeld) return;
  throw new OperatorError(
    `A server runs on ${resolve(dataFolder)}, and would not see the new accounts. Stop it, then run this again.`,
  );
}

async function accountIds(dataFolder: string): Promise<Set<string>> {
  const ids = [...tenantsInStore(storeFileOf(dataFolder)), ...(await tenantsInLog(logFolderOf(dataFolder)))];
  return new Set(ids.map((id) => tenantPartsOf(id).accountId));
}

function tenantsInStore(file: string): string[] {
  if (!existsSync(file)) return [];
  using store = openStoreFile(file, 'reader');
  return textsIn(store, 'SELECT id FROM tenants');
}

/** As far as it can be read: the next start reports the rest. */
async function tenantsInLog(folder: string): Promise<Set<string>> {
  const tenants = new Set<string>();
  const log = openEmbeddedLogReader({ folder });
  for (let position = 0; ; ) {
    const { headers, next } = await log.headers(LOCAL_PARTITION, position, HEADERS_PER_READ);
    if (headers.length === 0) break;
    for (const { tenantId } of headers) tenants.add(tenantId);
    position = next;
  }
  await log.close();
  return tenants;
}
