/**
 * Recreates `keys.db` in a data folder that has lost it (`data-folder/lost-keys.ts`), with the accounts that the data
 * there belongs to: their ids are in the store and in the log. Their names are lost, and so are keys and members. For a
 * folder without a running server.
 */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { keyFileOf, logFolderOf, storeFileOf } from '../../data-folder/files.ts';
import { OperatorError } from '../../errors.ts';
import { hasLostKeys } from '../../data-folder/lost-keys.ts';
import type { KeyStore } from '../../keys.ts';
import { lockHolderOf } from './checkup.ts';
import { openSqliteKeyStore } from './keys.ts';
import { holdsRecords, listSegments, openSegmentForReading } from './log/segments.ts';
import { openStoreFile } from './store/schema.ts';

/** For a single account; several are named by their ids. */
const ONLY_NAME = 'default';

export async function replaceLostKeys(dataFolder: string, now: number): Promise<KeyStore> {
  if (!hasLostKeys(dataFolder)) {
    throw new OperatorError(
      `${resolve(dataFolder)} has not lost its keys: there is a keys.db, or no data yet. Leave --replace-lost-keys out.`,
    );
  }
  if (lockHolderOf(dataFolder).isHeld) {
    throw new OperatorError(
      `A server runs on ${resolve(dataFolder)}, and would not see the new keys.db. Stop it, then run this again.`,
    );
  }
  const ids = [...accountIds(dataFolder)].sort();
  const store = openSqliteKeyStore(keyFileOf(dataFolder));
  for (const id of ids) await store.ensureAccount({ id, name: ids.length === 1 ? ONLY_NAME : id, createdAt: now });
  return store;
}

function accountIds(dataFolder: string): Set<string> {
  const ids = [...tenantsInStore(storeFileOf(dataFolder)), ...tenantsInLog(logFolderOf(dataFolder))];
  return new Set(ids.map((id) => id.slice(0, id.lastIndexOf('/'))));
}

function tenantsInStore(file: string): string[] {
  if (!existsSync(file)) return [];
  const store = openStoreFile(file, 'reader');
  try {
    return store
      .prepare('SELECT id FROM tenants')
      .all()
      .map((row) => String(row['id']));
  } finally {
    store.close();
  }
}

function tenantsInLog(folder: string): string[] {
  return listSegments(folder)
    .filter(holdsRecords)
    .flatMap(({ file }) => {
      const segment = openSegmentForReading(file);
      try {
        return segment
          .prepare('SELECT DISTINCT tenant_id FROM records')
          .all()
          .map((row) => String(row['tenant_id']));
      } catch {
        // Damaged, or an interrupted start: the next start reports it.
        return [];
      } finally {
        segment.close();
      }
    });
}
