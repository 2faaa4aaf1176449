/**
 * The store on PostgreSQL responds as the embedded one does, to the byte: the same history is taken in by both, with acts
 * in between, and everything that can be asked is asked of both.
 */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import { openPostgresStore } from '../../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../../src/backends/postgres/store-writer.ts';
import { openSqliteStore } from '../../../src/backends/embedded/store/store.ts';
import { openSqliteStoreWriter } from '../../../src/backends/embedded/store/writer.ts';
import type { Page, PeoplePage, StoredEvent } from '../../../src/store.ts';
import {
  ACT,
  ALL_EVENTS,
  allPages,
  feed,
  person,
  request,
  type StoreUnderTest,
  START,
  TENANT,
} from '../../contract/store-feeding.ts';
import { entriesOf, TENANTS } from '../../processor/history.ts';
import { dumpOf } from '../../processor/store-dump.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { migratedDatabase } from './database.ts';

const BATCH = 40;
const NOTHING = { rows: [], nextCursor: null };

async function openPostgres(): Promise<StoreUnderTest> {
  const pool = await (await migratedDatabase()).connect();
  const store = openPostgresStore({ pool: pool.share(), logName: 'test:log' });
  const writer = openPostgresStoreWriter({ pool, logName: 'test:log' });
  return { store, writer, close: async () => void (await Promise.all([store.close(), writer.close()])) };
}

function openSqlite(folder: string): StoreUnderTest {
  const file = join(folder, 'store.db');
  const writer = openSqliteStoreWriter({ file });
  const store = openSqliteStore(file);
  return { store, writer, close: async () => void (await Promise.all([store.close(), writer.close()])) };
}

/** Undoes a merge of the profile that has most, and erases the one that has second most. */
async function act({ store }: StoreUnderTest): Promise<unknown[]> {
  const results: unknown[] = [];
  for (const tenantId of TENANTS) {
    const profiles = await allPages((page) => store.profiles(tenantId, page));
    const [first, second] = profiles.toSorted((a, b) => b.mergedIds.length - a.mergedIds.length);
    const cause = first && (await store.identity(tenantId, first.id))?.merges.at(-1)?.traceId;
    if (first && cause) results.push(await store.unmerge(tenantId, first.id, cause, ACT));
    if (second) results.push(await store.erase(tenantId, second.id, { ...ACT, at: START }));
  }
  return results;
}

/** What the dump does not ask. */
async function moreLines({ store }: StoreUnderTest): Promise<string[]> {
  const lines: string[] = [];
  for (const tenantId of TENANTS) {
    for (const interval of ['minute', 'hour', 'day'] as const) {
      const range = { from: START - 1e13, to: START + 1e13 };
      lines.push(JSON.stringify(await store.counts(tenantId, { interval, ...range, byEventName: false })));
    }
    for (const text of [null, 'a', 'U', 'x@', '1', 'ö']) {
      for (const property of [null, { name: 'plan', value: null }]) {
        const query = { text, property, exact: [], budgetMs: 60_000, limit: 7 };
        for (let cursor: string | null = null; ; ) {
          const page: PeoplePage = await store.searchPeople(tenantId, { ...query, cursor });
          lines.push(JSON.stringify(page.rows.map(({ matched, profile }) => [matched, profile.id, profile.lastSeen])));
          cursor = page.nextCursor;
          if (cursor === null) break;
        }
      }
    }
    const traces = await allPages((page) => store.traces(tenantId, { ...page, limit: 9, status: null }));
    lines.push(...traces.map((row) => JSON.stringify(row)));
    const ids = (await allPages((page) => store.profiles(tenantId, page))).map(({ id }) => id);
    lines.push(JSON.stringify([...(await store.people(tenantId, ids))]));
    for (const { id, identifiers } of await allPages((page) => store.profiles(tenantId, page))) {
      const query = { eventName: null, from: null, to: null, limit: 7, profileId: id };
      for (let cursor: string | null = null; ; ) {
        const page: Awaited<ReturnType<typeof store.events>> = await store.events(tenantId, { ...query, cursor });
        lines.push(JSON.stringify(page?.rows));
        cursor = page?.nextCursor ?? null;
        if (cursor === null) break;
      }
      for (const value of identifiers.user_id) {
        lines.push(JSON.stringify((await store.findProfile(tenantId, 'user_id', value))?.id ?? null));
      }
    }
  }
  return lines;
}

suite('Responses of the store on PostgreSQL', { skip: whyNoPostgres() }, () => {
  // Other histories are those of scaling/agreement.test.ts.
  for (const seed of [31]) {
    test(`are those of the embedded store, history ${seed}`, async (context) => {
      const both = await inBoth(context);
      const entries = entriesOf(seed, 240, 25);
      const traceIds = entries.map(({ traceId }) => traceId);
      for (let start = 0; start < entries.length; start += BATCH) {
        const batch = entries.slice(start, start + BATCH);
        for (const under of both) await feed(under, batch);
        const [expected, results] = [await act(both[0]), await act(both[1])];
        assert.deepEqual(results, expected);
      }
      const [embedded, shared] = both;
      const expected = [...(await dumpOf(embedded.store, traceIds)), ...(await moreLines(embedded))];
      const lines = [...(await dumpOf(shared.store, traceIds)), ...(await moreLines(shared))];
      assert.ok(expected.length > 500);
      for (const [index, line] of expected.entries()) assert.equal(lines[index], line);
      assert.equal(lines.length, expected.length);
    });
  }

  async function inBoth(context: TestContext): Promise<readonly [StoreUnderTest, StoreUnderTest]> {
    const folder = temporaryFolder();
    const both = [openSqlite(folder), await openPostgres()] as const;
    context.after(async () => {
      await Promise.all(both.map((under) => under.close()));
      removeFolder(folder);
    });
    return both;
  }

  test('end a page of large events where the embedded store does', async (context) => {
    const both = await inBoth(context);
    // Pages are measured in UTF-16 units, and PostgreSQL counts bytes: one makes two of them here, or three.
    const pads = ['ü'.repeat(4_000_000), '漢'.repeat(3_000_000)];
    const entries = Array.from({ length: 6 }, (_, n) => request([person({ user_id: 'u' }, [{ pad: pads[n % 2] }])]));
    const responses = [];
    for (const under of both) {
      await feed(under, [request([person({ user_id: 'u' })])]);
      const start = (await under.store.arrivals(TENANT, null, 1)).last;
      for (const entry of entries) await feed(under, [entry]);
      const pages: number[] = [];
      for (let cursor: string | null = null; ; ) {
        const page: Page<StoredEvent> | undefined = await under.store.events(TENANT, { ...ALL_EVENTS, cursor });
        pages.push(page?.rows.length ?? 0);
        cursor = page?.nextCursor ?? null;
        if (cursor === null) break;
      }
      const arrivals: number[] = [];
      for (let last = start; ; ) {
        const page = await under.store.arrivals(TENANT, last, 100);
        if (page.events.length === 0) break;
        arrivals.push(page.events.length);
        ({ last } = page);
      }
      responses.push({ pages, arrivals });
    }
    assert.deepEqual(responses[1], responses[0]);
    assert.ok((responses[1]?.pages.length ?? 0) > 1 && (responses[1]?.arrivals.length ?? 0) > 1);
  });

  test('say nothing, and are no errors, where a question holds U+0000', async (context) => {
    for (const under of await inBoth(context)) {
      await feed(under, [request([person({ user_id: 'u' }), 7])]);
      const { store } = under;
      const { id = '' } = (await store.findProfile(TENANT, 'user_id', 'u')) ?? {};
      assert.equal(await store.findProfile(TENANT, 'user_id', 'u\0'), undefined);
      assert.equal(await store.profile(TENANT, 'u\0'), undefined);
      for (const profileId of [null, id]) {
        assert.deepEqual(await store.events(TENANT, { ...ALL_EVENTS, profileId, eventName: 'tested\0' }), NOTHING);
      }
      const query = { from: null, to: null, limit: 5, cursor: null, reason: 'user\0' };
      assert.deepEqual(await store.rejections(TENANT, query), NOTHING);
      assert.deepEqual(await store.profiles(`${TENANT}\0`, { limit: 5, cursor: null }), NOTHING);
      assert.equal(await store.trace(`${TENANT}\0`, id), undefined);
    }
  });
});
