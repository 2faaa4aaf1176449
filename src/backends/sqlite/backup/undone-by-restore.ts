/**
 * What a restore undoes, as far as the previous data folder shows: people erased and keys revoked there since the
 * backup began. Reads only, and contains no personal data: erased profiles are identified by their ids.
 */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { UndoneByRestore } from '../../../backup/undone.ts';
import { keyFileOf, storeFileOf } from '../../../data-folder/files.ts';
import { messageOf, OperatorError } from '../../../errors.ts';
import { BUSY_TIMEOUT_MS } from '../database.ts';

export function undoneByRestore(oldFolder: string, since: number): UndoneByRestore {
  const erased = rowsOf(
    storeFileOf(oldFolder),
    `SELECT tenants.id AS tenantId, json_extract(detail, '$.profile_id') AS profileId, at
     FROM audit JOIN tenants ON tenants.no = audit.tenant WHERE kind = 'erase' AND at >= ? ORDER BY audit.no`,
    since,
  );
  const revokedKeys = rowsOf(
    keyFileOf(oldFolder),
    'SELECT id, name, revoked_at AS at FROM keys WHERE revoked_at >= ? ORDER BY revoked_at',
    since,
  );
  const installations = [storeFileOf(oldFolder), keyFileOf(oldFolder)].flatMap((file) =>
    rowsOf(file, 'SELECT installation FROM belongs_to').map((row) => String(row['installation'])),
  );
  return { installations, erased, revokedKeys } as unknown as UndoneByRestore;
}

function rowsOf(file: string, sql: string, ...values: readonly number[]): Record<string, unknown>[] {
  if (!existsSync(file)) throw cannotRead(file, 'it is not there');
  try {
    const database = new DatabaseSync(file, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
    try {
      return database.prepare(sql).all(...values);
    } finally {
      database.close();
    }
  } catch (error) {
    throw cannotRead(file, messageOf(error));
  }
}

function cannotRead(file: string, reason: string): OperatorError {
  return new OperatorError(
    `${resolve(file)} cannot be read: ${reason}. Restore without --old-data, and take from your own records who was erased and what was revoked since the backup.`,
  );
}
