/**
 * Cursors of arrivals over starts and copies of the store's file. Two histories that began with one copy give the same
 * numbers to different events: each copy is put back here so that they do.
 */

import assert from 'node:assert/strict';
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { openStoreFile } from '../../../src/backends/embedded/store/schema.ts';
import { recordStart, skipNumbersAfterRestore } from '../../../src/backends/embedded/store/starts.ts';
import { openSqliteStore } from '../../../src/backends/embedded/store/store.ts';
import { openSqliteStoreWriter } from '../../../src/backends/embedded/store/writer.ts';
import { BadCursorError } from '../../../src/store.ts';
import { OLDEST } from '../../../src/views/cursor.ts';
import { arrivedAfter } from '../../contract/store-arrivals.ts';
import { person, send, START, type StoreUnderTest, TENANT } from '../../contract/store-feeding.ts';
import { folderIn } from '../../faults/scope.ts';

type Running = StoreUnderTest;

function startOn(file: string): void {
  const database = openStoreFile(file, 'writer');
  recordStart(database, START);
  database.close();
}

/** A start of a server, until `use` has ended. */
async function during<Result>(file: string, use: (running: Running) => Promise<Result>): Promise<Result> {
  startOn(file);
  const writer = openSqliteStoreWriter({ file, groupEvents: 1_000 });
  const store = openSqliteStore(file);
  const close = async (): Promise<void> => {
    await store.close();
    await writer.close();
  };
  try {
    return await use({ writer, store, close });
  } finally {
    await close();
  }
}

async function sendSeveral(running: Running, count: number): Promise<string[]> {
  const traces: string[] = [];
  for (let n = 0; n < count; n++) traces.push(await send(running, [person({ user_id: `u${n}` })]));
  return traces;
}

const endOf = async ({ store }: Running): Promise<string> => (await store.arrivals(TENANT, null, 1)).last;
const tracesAfter = async (running: Running, after: string): Promise<string[]> =>
  (await arrivedAfter(running, after)).events.map(({ traceId }) => traceId);
const putBack = (error: unknown): boolean =>
  error instanceof BadCursorError && /a backup was put back since.*"oldest"/.test(error.message);

suite('A cursor of arrivals', () => {
  for (const [words, restored] of [
    ['a copy of the file', false],
    ['a backup', true],
  ] as const) {
    test(`that was given after ${words} was made is refused once that is put back, however often`, async () => {
      await using scope = new AsyncDisposableStack();
      const folder = folderIn(scope);
      const [file, copy] = [join(folder, 'store.db'), join(folder, 'copy.db')];
      const [before, [first]] = await during(file, async (running) => {
        const traces = await sendSeveral(running, 1);
        return [await endOf(running), traces] as const;
      });
      copyFileSync(file, copy);
      const lost: string[] = [];
      for (const count of [3, 5, 7]) {
        copyFileSync(copy, file);
        if (restored) skipNumbersAfterRestore(file, START);
        await during(file, async (running) => {
          for (const cursor of lost) await assert.rejects(tracesAfter(running, cursor), putBack);
          const traces = await sendSeveral(running, count);
          for (const cursor of lost) await assert.rejects(tracesAfter(running, cursor), putBack);
          assert.deepEqual(await tracesAfter(running, before), traces);
          assert.deepEqual(await tracesAfter(running, OLDEST), [first, ...traces]);
          lost.push(await endOf(running));
        });
      }
      // By now this history has given out higher numbers than the others.
      for (let n = 0; n < 3; n++) startOn(file);
      await during(file, async (running) => {
        const traces = await sendSeveral(running, 2);
        const last = lost.pop() ?? '';
        for (const cursor of lost) await assert.rejects(tracesAfter(running, cursor), putBack);
        assert.deepEqual(await tracesAfter(running, last), traces);
      });
    });
  }

  test('that names a number which its start gave after the copy was made is refused where another start has it', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    const [file, copy] = [join(folder, 'store.db'), join(folder, 'copy.db')];
    const ahead = await during(file, async (running) => {
      await sendSeveral(running, 1);
      const database = new DatabaseSync(file);
      database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
      copyFileSync(file, copy);
      // Far more events than a start skips.
      database.exec("UPDATE sequences SET next = next + 4e9 WHERE name = 'event'");
      database.close();
      return endOf(running);
    });
    copyFileSync(copy, file);
    await during(file, async (running) => {
      await sendSeveral(running, 1);
      await assert.rejects(tracesAfter(running, ahead), putBack);
    });
  });

  test('is good over a start, and those of the last 10,000 starts are known', async () => {
    await using scope = new AsyncDisposableStack();
    const file = join(folderIn(scope), 'store.db');
    const cursor = await during(file, endOf);
    const traces = await during(file, (running) => sendSeveral(running, 1));
    const database = openStoreFile(file, 'writer');
    database.exec(`
      WITH RECURSIVE more (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more WHERE n < 9997)
      INSERT INTO starts SELECT NULL, lower(hex(randomblob(8))), (SELECT max(first_event) FROM starts) FROM more`);
    database.close();
    await during(file, async (running) => assert.deepEqual(await tracesAfter(running, cursor), traces));
    await during(file, async (running) => {
      await assert.rejects(tracesAfter(running, cursor), putBack);
      assert.deepEqual(await tracesAfter(running, OLDEST), traces);
    });
  });
});
