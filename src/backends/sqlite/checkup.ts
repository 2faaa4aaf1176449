/**
 * What `sluice doctor` asks of the embedded files: who holds the data folder, what the log's segments are called, how
 * much disk is free, whether every page and every link of the store is sound. Reads only; takes no lock that a server would notice.
 */

import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { OperatorError } from '../../errors.ts';
import { isBusy, isDamage } from './database.ts';
import { foreignLockText } from './folder-lock.ts';
import { brokenLinksIn } from './store/consistency.ts';

const FINDINGS_MAX = 5;

/** The lock itself says whether a server runs; the process id is what the last one wrote down. */
export function lockHolderOf(folder: string): { isHeld: boolean; pid: number | null } {
  return { isHeld: isLocked(join(folder, 'lock.db')), pid: pidIn(join(folder, 'server.pid')) };
}

/** For users other than root. */
export function freeBytesOf(folder: string): number {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}

/**
 * What is wrong in the store's file, in words; nothing when its pages are whole. Reads all of it. Deep: links between rows,
 * too, which takes many times as long.
 */
export function findingsInStore(file: string, isDeep: boolean): string[] {
  const database = new DatabaseSync(file, { readOnly: true });
  try {
    database.exec('BEGIN');
    const rows = database.prepare(`PRAGMA quick_check(${FINDINGS_MAX})`).all();
    const findings = rows.map((row) => String(row['quick_check'])).filter((text) => text !== 'ok');
    return findings.length > 0 || !isDeep ? findings : brokenLinksIn(database, FINDINGS_MAX);
  } catch (error) {
    if (!isDamage(error) || !(error instanceof Error)) throw error;
    return [error.message];
  } finally {
    database.close();
  }
}

function isLocked(file: string): boolean {
  if (!existsSync(file)) return false;
  const database = new DatabaseSync(file, { readOnly: true, timeout: 0 });
  try {
    // Any read takes a shared lock for a moment, which a server's exclusive one forbids.
    database.prepare('SELECT count(*) FROM sqlite_schema').get();
    return false;
  } catch (error) {
    if (isBusy(error)) return true;
    if (isDamage(error)) throw new OperatorError(foreignLockText(file), { cause: error });
    throw error;
  } finally {
    database.close();
  }
}

function pidIn(file: string): number | null {
  try {
    const pid = Number(readFileSync(file, 'utf8').trim());
    return Number.isSafeInteger(pid) && pid > 0 ? pid : null;
  } catch {
    return null;
  }
}
