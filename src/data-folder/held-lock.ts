/**
 * The lock of the data folder, as the threads see it that do not hold it themselves. An operating system lets any process
 * remove a locked file: the lock then lasts, but on a file without a name, and a second server makes a new `lock.db` and
 * starts. So before a request is acknowledged, or what was read from the log is committed, the thread checks whether the
 * file under the name is still the one that is locked. A second server looks at the log after it has put its own file
 * there; what was acknowledged after such a check is therefore in the log that it sees.
 */

import { resolve } from 'node:path';
import { identityOf } from './file-identity.ts';

export interface HeldLock {
  readonly file: string;
  /** Identity of the locked file. */
  readonly identity: string;
}

/** This server no longer has its data folder to itself. The process must end, and acknowledge nothing more. */
export class LockLostError extends Error {
  override readonly name = 'LockLostError';
}

/** One `stat`. Null where nothing is locked: servers that share their log have no data folder. */
export function assertLockHeld(lock: HeldLock | null): void {
  if (lock === null || identityOf(lock.file) === lock.identity) return;
  const file = resolve(lock.file);
  throw new LockLostError(
    `${file} was removed or replaced while this server was running, so a second server can start on the same data folder and give out the same ` +
      'positions. This server ends. Nothing that it acknowledged is lost. Make sure that one server runs on this folder, ' +
      'then start it again. Never remove lock.db: it is not a leftover of a crash, since the lock ends with the process.',
  );
}
