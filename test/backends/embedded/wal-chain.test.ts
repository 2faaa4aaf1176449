/**
 * A database and a write-ahead log, each copied at many moments of a life with checkpoints, restarts and kills. Every copy of
 * the one is put beside every copy of the other: a pair is refused exactly when SQLite would make a state of it that never
 * was.
 */

import assert from 'node:assert/strict';
import { appendFileSync, copyFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { transaction } from '../../../src/backends/embedded/database.ts';
import { isWalOfAnother } from '../../../src/backends/embedded/wal-chain.ts';
import { folderIn } from '../../faults/scope.ts';

interface Copy {
  readonly main: string;
  readonly wal: string;
  /** The last commit that is in the main file. */
  readonly checkpointed: number;
  /** The write-ahead log has the commits after `begins`, up to `ends`. */
  readonly begins: number;
  readonly ends: number;
}

/** Does one commit after the other, and knows which are where. */
class Life {
  readonly file: string;
  readonly #folder: string;
  #database: DatabaseSync;
  #commits = 0;
  #checkpointed = 0;
  #begins = 0;
  #copies = 0;

  /** Goes on from a copy of `from`. */
  constructor(folder: string, from?: string) {
    this.#folder = folder;
    this.file = join(folder, 'live.db');
    if (from !== undefined) copyFileSync(from, this.file);
    this.#database = this.#open();
    this.#database.exec('CREATE TABLE IF NOT EXISTS numbers (n INTEGER PRIMARY KEY, text TEXT)');
    this.#database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  }

  commit(count: number): void {
    for (let n = 0; n < count; n += 1) {
      // SQLite restarts it once all of it is in the file.
      if (this.#checkpointed === this.#commits) this.#begins = this.#commits;
      this.#commits += 1;
      transaction(this.#database, () =>
        this.#database.prepare('INSERT INTO numbers (text) VALUES (?)').run('x'.repeat(1_000)),
      );
    }
  }

  checkpoint(): void {
    this.#database.exec('PRAGMA wal_checkpoint(PASSIVE)');
    this.#checkpointed = this.#commits;
  }

  /** As a process does that ends in order. */
  restart(): void {
    this.#database.close();
    this.#checkpointed = this.#commits;
    this.#database = this.#open();
  }

  copy(): Copy {
    this.#copies += 1;
    const [main, wal] = [join(this.#folder, `${this.#copies}.db`), join(this.#folder, `${this.#copies}.wal`)];
    copyFileSync(this.file, main);
    copyFileSync(`${this.file}-wal`, wal);
    return { main, wal, checkpointed: this.#checkpointed, begins: this.#begins, ends: this.#commits };
  }

  close(): void {
    this.#database.close();
  }

  #open(): DatabaseSync {
    const database = new DatabaseSync(this.file);
    database.exec('PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = OFF');
    return database;
  }
}

function isRefused(folder: string, main: Copy, wal: Copy): boolean {
  const file = join(folder, 'pair.db');
  copyFileSync(main.main, file);
  copyFileSync(wal.wal, `${file}-wal`);
  return isWalOfAnother(file);
}

suite('A write-ahead log beside a database file', () => {
  test('is refused exactly when the file has not what came before it, or has what comes after it', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    const life = new Life(folder);
    const copies: Copy[] = [];
    for (const end of ['kill', 'checkpoint', 'checkpoint', 'restart', 'kill', 'checkpoint']) {
      life.commit(3);
      copies.push(life.copy());
      if (end === 'checkpoint') life.checkpoint();
      if (end === 'restart') life.restart();
      if (end === 'checkpoint') copies.push(life.copy());
    }
    life.close();
    for (const main of copies) {
      for (const wal of copies) {
        const fits = wal.begins <= main.checkpointed && main.checkpointed <= wal.ends;
        const names = `a file with ${main.checkpointed}, a write-ahead log of ${wal.begins} to ${wal.ends}`;
        assert.equal(isRefused(folder, main, wal), !fits, names);
      }
    }
  });

  test('is refused when it comes from another life of the same file', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    const first = new Life(folder);
    first.commit(3);
    first.restart();
    const lives = [first, new Life(folderIn(scope), first.file)];
    const copies = lives.map((life) => {
      life.commit(3);
      life.checkpoint();
      life.commit(3);
      return life.copy();
    });
    for (const life of lives) life.close();
    for (const main of copies) {
      for (const wal of copies) assert.equal(isRefused(folder, main, wal), main !== wal);
    }
  });

  test('may be empty, missing, or cut short', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    const life = new Life(folder);
    life.commit(3);
    const { main, wal } = life.copy();
    life.close();
    const file = join(folder, 'pair.db');
    copyFileSync(main, file);
    assert.equal(isWalOfAnother(file), false, 'missing');
    writeFileSync(`${file}-wal`, '');
    assert.equal(isWalOfAnother(file), false, 'empty');
    copyFileSync(wal, `${file}-wal`);
    appendFileSync(`${file}-wal`, Buffer.alloc(100));
    assert.equal(isWalOfAnother(file), false, 'with a frame that was not finished');
    truncateSync(`${file}-wal`, 40);
    assert.equal(isWalOfAnother(file), false, 'cut within its first frame');
    rmSync(`${file}-wal`);
  });

  test('is not refused at any moment between commits and checkpoints of an open connection', async () => {
    await using scope = new AsyncDisposableStack();
    const life = new Life(folderIn(scope));
    for (let round = 0; round < 200; round += 1) {
      life.commit(1 + (round % 3));
      if (round % 5 === 0) life.checkpoint();
      assert.equal(isWalOfAnother(life.file), false);
    }
    life.close();
  });
});
