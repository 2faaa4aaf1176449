/**
 * A program that runs `sluice tail --since 2h` with the shell of its process; tests close its pipe and send it signals.
 */

import { openSqliteKeyStore } from '../../src/backends/sqlite/keys.ts';
import { openSqliteLogReader } from '../../src/backends/sqlite/log-reader.ts';
import { openSqliteStore } from '../../src/backends/sqlite/store.ts';
import { shellOf } from '../../src/cli/shell.ts';
import { runTail } from '../../src/cli/tail.ts';
import { logFolderOf, storeFileOf } from '../../src/data-folder.ts';
import { createReading } from '../../src/reading.ts';

const shell = shellOf(process, {
  env: { SLUICE_DATA: process.argv[2] },
  openStore: async (folder) =>
    createReading(
      openSqliteStore(storeFileOf(folder)),
      openSqliteLogReader({ folder: logFolderOf(folder), retentionMs: Number.MAX_SAFE_INTEGER, now: Date.now }),
    ),
  openKeyStore: openSqliteKeyStore,
});
process.exitCode = await runTail(['--since', '2h', '--json'], shell);
