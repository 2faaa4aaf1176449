/** The embedded installation as the source of a migration: wherever reading stops and continues, each row comes once. */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { after, before, suite, test } from 'node:test';
import { DatabaseSync } from 'node:sqlite';
import { columnsOf, PART_NAMES } from '../../../src/backends/sql/migrated-parts.ts';
import { openSqliteMigrationSource } from '../../../src/backends/embedded/migration-source.ts';
import { keyFileOf, storeFileOf } from '../../../src/data-folder/files.ts';
import { openStoreFile } from '../../../src/backends/embedded/store/schema.ts';
import { OperatorError } from '../../../src/errors.ts';
import type { MigratedValue, MigrationSource } from '../../../src/migration/parts.ts';
import { fillInstallation } from '../../cli/embedded-installation.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';

const ALL_AT_ONCE = { rows: 1e9, length: 1e9 };
const FEW_ROWS = { rows: 7, length: 1e9 };
const LITTLE_TEXT = { rows: 1e9, length: 900 };

suite('The embedded installation as the source of a migration', () => {
  const folder = temporaryFolder();
  before(async () => {
    await fillInstallation(folder, 240);
  });
  after(() => removeFolder(folder));

  const open = (limits = ALL_AT_ONCE): MigrationSource => openSqliteMigrationSource(folder, limits);

  test('has something of every part, as many rows as it says, and a value for every column', async () => {
    const source = open();
    for (const part of PART_NAMES) {
      const rows = await rowsOf(source, part);
      assert.ok(rows.length > 0, `the installation has nothing of ${part}`);
      assert.equal(await source.count(part), rows.length, part);
      assert.ok(rows.every((row) => row.length === columnsOf(part).length));
    }
    await source.close();
  });

  for (const [limits, words] of [
    [FEW_ROWS, 'a few rows'],
    [LITTLE_TEXT, 'little text'],
  ] as const) {
    test(`gives the same rows in chunks of ${words}, and the rest of them after each position`, async () => {
      const [whole, cut] = [open(), open(limits)];
      for (const part of PART_NAMES) {
        const rows = await rowsOf(whole, part);
        const taken: MigratedValue[][] = [];
        let chunks = 0;
        for await (const chunk of cut.chunks(part, null)) {
          taken.push(...rowsIn(chunk.columns));
          chunks += 1;
          assert.deepEqual(await rowsOf(whole, part, chunk.position), rows.slice(taken.length), part);
        }
        assert.deepEqual(taken, rows, part);
        if (part === 'events') assert.ok(chunks > 10);
      }
      await whole.close();
      await cut.close();
    });
  }

  test('is not changed by being read', async () => {
    const digests = (): string[] =>
      [storeFileOf(folder), keyFileOf(folder)].map((file) =>
        createHash('sha256').update(readFileSync(file)).digest('hex'),
      );
    const beforehand = digests();
    const source = open();
    for (const part of PART_NAMES) await rowsOf(source, part);
    await source.ledger();
    await source.close();
    assert.deepEqual(digests(), beforehand);
  });

  test('is refused when another version of Sluice wrote it, or when it is not there', async () => {
    const other = temporaryFolder();
    assert.throws(
      () => openSqliteMigrationSource(other),
      isOperatorError(/has neither store\.db nor keys\.db\. Name the data folder/),
    );
    const database = new DatabaseSync(storeFileOf(other));
    database.exec('PRAGMA user_version = 1');
    assert.throws(() => openSqliteMigrationSource(other), isOperatorError(/older version of Sluice, before 1\.0/));
    assert.throws(
      () => openStoreFile(storeFileOf(other), 'writer'),
      isOperatorError(/does not read \(1; \d+ is the oldest\)/),
    );
    database.exec('PRAGMA user_version = 99');
    database.close();
    assert.throws(() => openSqliteMigrationSource(other), isOperatorError(/written by a newer Sluice/));
    removeFolder(other);
  });
});

function isOperatorError(words: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof OperatorError && words.test(error.message);
}

async function rowsOf(
  source: MigrationSource,
  part: string,
  position: string | null = null,
): Promise<MigratedValue[][]> {
  const rows: MigratedValue[][] = [];
  for await (const { columns } of source.chunks(part, position)) rows.push(...rowsIn(columns));
  return rows;
}

function rowsIn(columns: readonly (readonly MigratedValue[])[]): MigratedValue[][] {
  return (columns[0] ?? []).map((_, row) => columns.map((column) => column[row] ?? null));
}
