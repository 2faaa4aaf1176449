/**
 * `sluice migrate` in small chunks, which kills itself with -9 at a chunk of its choice: before it is sent, while the
 * database is at it, or after it is there. Arguments: data folder, URL, which chunk, when. migrate.test.ts runs it until
 * it gets to the end.
 */

import { lockFolder } from '../../src/backends/embedded/folder-lock.ts';
import { openSqliteMigrationSource } from '../../src/backends/embedded/migration-source.ts';
import { openPostgresMigrationTarget } from '../../src/backends/postgres/migration-target.ts';
import { runMigrate } from '../../src/cli/migrate.ts';
import { shellOf } from '../../src/cli/shell.ts';
import type { MigrationTarget } from '../../src/migration/parts.ts';
import * as stores from '../../src/wiring/opening.ts';

const CHUNK = { rows: 150, length: 1e6 };

const [, , dataFolder = '', url = '', fatalChunk = '0', when = 'after'] = process.argv;

function dyingTarget(target: MigrationTarget): MigrationTarget {
  let chunks = 0;
  const take: MigrationTarget['take'] = async (...chunk) => {
    chunks += 1;
    const isFatal = chunks === Number(fatalChunk);
    const die = (): void => void process.kill(process.pid, 'SIGKILL');
    if (isFatal && when === 'before') die();
    // Two round trips or so later.
    if (isFatal && when === 'during') setTimeout(die, 2);
    await target.take(...chunk);
    if (isFatal) die();
  };
  return {
    location: target.location,
    state: () => target.state(),
    begin: (move) => target.begin(move),
    progress: () => target.progress(),
    take,
    prepareForWrites: (nextNumber) => target.prepareForWrites(nextNumber),
    count: (part) => target.count(part),
    ledger: () => target.ledger(),
    finish: (at) => target.finish(at),
    close: () => target.close(),
  };
}

process.exitCode = await runMigrate(['--data', dataFolder], {
  ...shellOf({ STORE_URL: url }, stores),
  lockFolder,
  openSource: (folder) => openSqliteMigrationSource(folder, CHUNK),
  openTarget: async (to) => dyingTarget(await openPostgresMigrationTarget(to)),
});
