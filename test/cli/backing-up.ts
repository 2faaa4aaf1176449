/** What the tests of `sluice backup` and `sluice restore` share: both commands in this process, on real files. */

import * as backupParts from '../../src/backends/embedded/backup/backup.ts';
import * as restoreParts from '../../src/backends/embedded/backup/restore.ts';
import { freeBytesOf } from '../../src/backends/embedded/checkup.ts';
import { lockFolder } from '../../src/backends/embedded/folder-lock.ts';
import { type BackupShell, runBackup } from '../../src/cli/backup.ts';
import { type RestoreShell, runRestore } from '../../src/cli/restore.ts';
import { OperatorError } from '../../src/errors.ts';
import { type Ran, testShell } from './data-shell.ts';

/** `code` is -1 and `err` has the words where it is refused. */
export async function backup(args: readonly string[], changes: Partial<BackupShell> = {}): Promise<Ran> {
  const { shell, out, err } = testShell({});
  const parts = { ...backupParts, freeBytesOf, version: '0.1.0-test' };
  return outcome(() => runBackup(args, { ...shell, ...parts, ...changes }), out, err);
}

export async function restore(args: readonly string[], changes: Partial<RestoreShell> = {}): Promise<Ran> {
  const { shell, out, err } = testShell({});
  const { checkDataFolder } = backupParts;
  const parts = { ...restoreParts, checkDataFolder, freeBytesOf, lockFolder };
  return outcome(() => runRestore(args, { ...shell, ...parts, ...changes }), out, err);
}

async function outcome(command: () => Promise<number>, out: () => string, err: () => string): Promise<Ran> {
  try {
    return { code: await command(), out: out(), err: err() };
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    return { code: -1, out: out(), err: error.message };
  }
}
