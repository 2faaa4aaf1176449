/** What `sluice doctor` works with when a test runs it in its own process: the real parts. */

import { isBackupRunning } from '../../src/backends/sqlite/backup/lock.ts';
import { findingsInStore, freeBytesOf } from '../../src/backends/sqlite/checkup.ts';
import { lockHolderOf } from '../../src/backends/sqlite/folder-lock.ts';
import { problemOfInstallation } from '../../src/backends/sqlite/installation.ts';
import { listSegments } from '../../src/backends/sqlite/log/segments.ts';
import { runDoctor } from '../../src/cli/doctor.ts';
import type { DoctorShell } from '../../src/cli/doctor-checks.ts';
import { logFolderOf, storeFileOf } from '../../src/data-folder/files.ts';
import { findLogReader, inspectLocalLog, lookAtDatabase } from '../../src/wiring/opening.ts';
import { testShell } from './data-shell.ts';

export function doctorShell(
  data: string,
  changes: Partial<DoctorShell> = {},
): { shell: DoctorShell; out: () => string } {
  const { shell, out } = testShell({ env: { SLUICE_DATA: data, SLUICE_DISK_FREE_MIN: '0' } });
  return {
    shell: {
      ...shell,
      findLogReader,
      inspectLocalLog,
      segments: (folder) => listSegments(logFolderOf(folder)),
      problemOfInstallation,
      lockHolder: lockHolderOf,
      isBackupRunning: (folder) => isBackupRunning(logFolderOf(folder)),
      freeBytes: freeBytesOf,
      checkStoreFile: async (folder, isDeep) => findingsInStore(storeFileOf(folder), isDeep),
      lookAtDatabase,
      ...changes,
    },
    out,
  };
}

/** What a person reads, in one line, and the exit code. */
export async function doctorHere(
  data: string,
  env: Readonly<Record<string, string>> = {},
): Promise<{ code: number; words: string }> {
  const settings = { SLUICE_DATA: data, SLUICE_DISK_FREE_MIN: '0', ...env };
  const { shell, out } = doctorShell(data, { env: settings, now: Date.now });
  const code = await runDoctor([], shell);
  return { code, words: out().replaceAll(/\s+/g, ' ') };
}
