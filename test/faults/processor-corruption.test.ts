/**
 * A store that is damaged: pages that are zeroed, torn or hold something else. Every page of a store is damaged in turn, and
 * everything is read: what comes back is what was stored, or an error; a server refuses to start or responds with errors,
 * in words. Limit: SQLite keeps no checksums of pages, so a flipped letter is noticed in events and in
 * sorted runs, which have their own, and not in other texts.
 */

import assert from 'node:assert/strict';
import { closeSync, copyFileSync, openSync, readFileSync, readSync, rmSync, statSync, writeSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { after, before, suite, test } from 'node:test';
import { storeFileOf } from '../../src/data-folder/files.ts';
import { OperatorError } from '../../src/errors.ts';
import { StoreUnavailableError } from '../../src/store-writer.ts';
import { entriesOf } from '../processor/history.ts';
import { appendAll, processAll, storeCopyOf, withStore } from '../processor/processing.ts';
import { dumpOf } from '../processor/store-dump.ts';
import { readResponse, eventually, post, user } from '../server.ts';
import { ask, settled } from './processor-load.ts';
import { copyIn, folderIn, launch, refusedStart } from './scope.ts';

/**
 * Enough for nodes, identifiers, counts, records and events to have more than one page. Each page is damaged, and all of
 * the store is read each time, so the cost grows with the square.
 */
const RECORDS = 170;

function pageBytesOf(file: string): number {
  return readFileSync(file).readUInt16BE(16);
}

function overwrite(file: string, at: number, bytes: Uint8Array): void {
  const descriptor = openSync(file, 'r+');
  try {
    writeSync(descriptor, bytes, 0, bytes.length, at);
  } finally {
    closeSync(descriptor);
  }
}

function pageOf(file: string, page: number, bytes: number): Buffer {
  const content = Buffer.alloc(bytes);
  const descriptor = openSync(file, 'r');
  try {
    readSync(descriptor, content, 0, bytes, page * bytes);
  } finally {
    closeSync(descriptor);
  }
  return content;
}

type Damage = (content: Buffer, page: number) => Buffer;

const DAMAGES: Readonly<Record<string, Damage>> = {
  'is zeroed': (content) => Buffer.alloc(content.length),
  'holds noise': (content, page) => Buffer.from(content.map((_, n) => (n * 31 + page * 7) & 0xff)),
  'has a flipped head': (content) =>
    Buffer.concat([content.subarray(0, 8).map((byte) => byte ^ 0x55), content.subarray(8)]),
};

const shared = new AsyncDisposableStack();
/** Filled once; what a test damages is a copy. */
const filled = folderIn(shared);
const entries = entriesOf(21, RECORDS, 60);
const traceIds = entries.map(({ traceId }) => traceId);
let dump: string[];

before(async () => {
  await appendAll(filled, entries);
  await processAll(filled);
  dump = await withStore(storeFileOf(filled), (store) => dumpOf(store, traceIds));
});
after(() => shared.disposeAsync());

/** The texts of the first block of events. */
function textsIn(file: string): Uint8Array {
  using database = new DatabaseSync(file, { readOnly: true });
  return database.prepare('SELECT texts FROM events LIMIT 1').get()?.['texts'] as Uint8Array;
}

function flipTexts(page: Buffer, texts: Uint8Array): void {
  const at = page.indexOf(texts) + Math.floor(texts.length / 2);
  page.writeUInt8(page.readUInt8(at) ^ 0x55, at);
}

suite('A store of which a page', () => {
  type Outcome = 'refused' | 'noticed' | 'harmless' | 'silently wrong';

  async function outcomeOf(damaged: string): Promise<Outcome> {
    try {
      const found = await withStore(damaged, (store) => dumpOf(store, traceIds));
      return found.join('\n') === dump.join('\n') ? 'harmless' : 'silently wrong';
    } catch (error) {
      if (error instanceof OperatorError) return 'refused';
      if (error instanceof StoreUnavailableError) return 'noticed';
      if (error instanceof assert.AssertionError) return 'silently wrong';
      throw error;
    }
  }

  test('is zeroed, holds noise or has a flipped head gives back what was stored, or an error that says so', async (t) => {
    await using scope = new AsyncDisposableStack();
    const copies = folderIn(scope);
    const file = storeFileOf(filled);
    const pageBytes = pageBytesOf(file);
    const pages = statSync(file).size / pageBytes;
    const found = new Map<string, number[]>();
    for (let page = 0; page < pages; page++) {
      for (const [what, damage] of Object.entries(DAMAGES)) {
        const damaged = storeCopyOf(copies, `damaged-${page} ${what}`);
        copyFileSync(file, damaged);
        overwrite(damaged, page * pageBytes, damage(pageOf(file, page, pageBytes), page));
        const outcome = `${what}: ${await outcomeOf(damaged)}`;
        found.set(outcome, [...(found.get(outcome) ?? []), page]);
        // It is of an index or a table that the dump does not read: no page that is read may be zero.
        if (outcome === 'is zeroed: harmless') break;
      }
    }
    t.diagnostic(`${pages} pages: ${Array.from(found, ([outcome, { length }]) => `${outcome} ${length}`).join(', ')}`);
    for (const what of Object.keys(DAMAGES)) {
      assert.deepEqual(found.get(`${what}: silently wrong`) ?? [], []);
      assert.ok((found.get(`${what}: refused`)?.length ?? 0) > 0);
      assert.ok((found.get(`${what}: noticed`)?.length ?? 0) > pages / 3);
    }
  });

  for (const [what, change, said] of [
    ['of zeros', (page: Buffer) => page.fill(0), /malformed/],
    ['with another byte among the texts of events', flipTexts, /is not what was written/],
  ] as const) {
    test(`${what} makes a server's read an error, and not a wrong response`, async () => {
      await using scope = new AsyncDisposableStack();
      const dataFolder = folderIn(scope);
      const first = await launch(scope, { dataFolder });
      const { key } = first;
      const users = Array.from({ length: 300 }, (_, n) => user(`user-${n}`, [{ event_name: 'tested', n }]));
      assert.equal((await post(first, key, { users })).status, 202);
      await settled(first, key);
      assert.equal(await first.stop(), 0);

      const file = storeFileOf(dataFolder);
      const pageBytes = pageBytesOf(file);
      const bytes = readFileSync(file);
      const from = Math.floor(bytes.indexOf(textsIn(file)) / pageBytes) * pageBytes;
      const page = bytes.subarray(from, from + pageBytes);
      change(page, textsIn(file));
      overwrite(file, from, page);
      const second = await launch(scope, { dataFolder });
      const response = await readResponse(await ask(second.baseUrl, key, '/events?limit=500'));
      assert.equal(response.status, 503, response.text);
      assert.doesNotMatch(response.text, /malformed|what was written|SQLITE|sqlite/, 'a client sees our files');
      await eventually('it is in the log', () => said.test(second.stderr()));
      assert.match(second.stderr(), /store\.db is damaged/);
      assert.equal((await fetch(`${second.baseUrl}/livez`)).status, 200);
    });
  }

  test('that is the first is damaged makes a server refuse to start, in words', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const first = await launch(scope, { dataFolder });
    assert.equal((await post(first, first.key, { users: [user('ada')] })).status, 202);
    await settled(first, first.key);
    assert.equal(await first.stop(), 0);
    overwrite(storeFileOf(dataFolder), 0, Buffer.alloc(100));
    const words = await refusedStart({ dataFolder });
    assert.match(words, /store .*store\.db is damaged/);
    assert.match(words, /backup/);
  });
});

test('a server whose processor finds the store damaged names the file, takes requests, and loses none', async () => {
  await using scope = new AsyncDisposableStack();
  const dataFolder = folderIn(scope);
  const first = await launch(scope, { dataFolder });
  const { key } = first;
  assert.equal((await post(first, key, { users: [user('ada')] })).status, 202);
  await settled(first, key);
  assert.equal(await first.stop(), 0);
  const file = storeFileOf(dataFolder);
  zeroRootOf(file, 'identifiers');

  const second = await launch(scope, { dataFolder });
  assert.equal((await post(second, key, { users: [user('bob')] })).status, 202);
  const line = await eventually('the damage is in the log', () =>
    second
      .stderr()
      .split('\n')
      .find((text) => text.includes('"msg":"the processor waits')),
  );
  const { reason } = JSON.parse(line) as { reason: string };
  assert.ok(reason.startsWith(`The store ${file} is damaged (`), reason);
  assert.match(
    reason,
    /Nothing in it was changed\. Stop Sluice .* from a backup.*Without a backup, move all three away/s,
  );
  assert.equal((await post(second, key, { users: [user('eve')] })).status, 202, 'requests are taken');
  assert.doesNotMatch(second.stderr(), /restart to recover/);
  assert.equal(await second.stop(), 0);

  for (const suffix of ['', '-wal', '-shm']) rmSync(file + suffix, { force: true });
  const third = await launch(scope, { dataFolder });
  await settled(third, key);
  const { body } = await readResponse(await ask(third.baseUrl, key, '/profiles/count'));
  assert.deepEqual(body, { profiles: 3 });
});

function zeroRootOf(file: string, table: string): void {
  const database = new DatabaseSync(file);
  database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  const { rootpage } = database.prepare('SELECT rootpage FROM sqlite_schema WHERE name = ?').get(table) as {
    rootpage: number;
  };
  database.close();
  const pageBytes = pageBytesOf(file);
  overwrite(file, (rootpage - 1) * pageBytes, Buffer.alloc(pageBytes));
}

/** Without the tables of tables it would not be opened: that is another test. */
function pagesToOpen(file: string): ReadonlySet<number> {
  const database = new DatabaseSync(file, { readOnly: true });
  const rows = database.prepare("SELECT pageno FROM dbstat WHERE name = 'sqlite_schema'").all();
  database.close();
  return new Set(rows.map(({ pageno }) => Number(pageno) - 1));
}

test('an error of a damaged store is one that the server knows', async () => {
  await using scope = new AsyncDisposableStack();
  const file = storeFileOf(copyIn(scope, filled));
  const pageBytes = pageBytesOf(file);
  const needed = pagesToOpen(file);
  for (let page = 0; page < statSync(file).size / pageBytes; page++) {
    if (!needed.has(page)) overwrite(file, page * pageBytes, Buffer.alloc(pageBytes));
  }
  await withStore(file, (store) => assert.rejects(dumpOf(store, []), StoreUnavailableError));
});
