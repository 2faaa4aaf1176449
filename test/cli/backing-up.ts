/** What the tests of `sluice backup` and `sluice restore` share: both commands in this process, on real files. */

import {
  checkDataFolder,
  copyDataFolder,
  lockDataFolder,
  sizeOfData,
  unknownFiles,
} from '../../src/backends/embedded/backup/backup.ts';
import { freeBytesOf } from '../../src/backends/embedded/checkup.ts';
import { lockFolder } from '../../src/backends/embedded/folder-lock.ts';
import { skipNumbersAfterRestore } from '../../src/backends/embedded/store/starts.ts';
import { installationsOf, undoneByRestore } from '../../src/backends/embedded/backup/undone-by-restore.ts';
import { createLogEnds, rewriteLogEnds } from '../../src/backends/embedded/log/recovery.ts';
import { logFolderOf, storeFileOf } from '../../src/data-folder/files.ts';
import { type BackupShell, runBackup } from '../../src/cli/backup.ts';
import { type RestoreShell, runRestore } from '../../src/cli/restore.ts';
import { OperatorError } from '../../src/errors.ts';
import { type Ran, testShell } from './data-shell.ts';

const BACKUP_PARTS = {
  version: '0.1.0-test',
  lockDataFolder,
  copyDataFolder,
  sizeOfData,
  unknownFiles,
  checkFolder: checkDataFolder,
  freeBytes: freeBytesOf,
};

/** `code` is -1 and `err` has the words where it is refused. */
export async function backup(args: readonly string[], changes: Partial<BackupShell> = {}): Promise<Ran> {
  const { shell, out, err } = testShell({});
  return outcome(() => runBackup(args, { ...shell, ...BACKUP_PARTS, ...changes }), out, err);
}

export async function restore(args: readonly string[], changes: Partial<RestoreShell> = {}): Promise<Ran> {
  const { shell, out, err } = testShell({});
  const skipEventNumbers = (folder: string, now: number): void => skipNumbersAfterRestore(storeFileOf(folder), now);
  const parts = {
    lockFolder,
    checkFolder: checkDataFolder,
    skipEventNumbers,
    noteLogEnds: (folder: string) => {
      rewriteLogEnds(logFolderOf(folder));
      createLogEnds(logFolderOf(folder));
    },
    installationsOf,
    undoneByRestore,
    freeBytes: freeBytesOf,
  };
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
