/** The store completed by what is still in the log: right from the moment of the 202, while a processor works. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { listSegments } from '../../src/backends/embedded/log/segments.ts';
import { openSqliteStore } from '../../src/backends/embedded/store/store.ts';
import { logFolderOf, storeFileOf } from '../../src/data-folder/files.ts';
import type { LogEntry, LogReader } from '../../src/log.ts';
import { withPendingRecords } from '../../src/views/reading.ts';
import type { LedgerSums, Page, Store, TraceSummary } from '../../src/store.ts';
import { override } from '../override.ts';
import { OTHER_TENANT, person, request, START, TENANT } from '../contract/store-feeding.ts';
import { entriesOf } from '../processor/history.ts';
import { appendAll, processAll } from '../processor/processing.ts';
import { differenceOf } from '../processor/store-dump.ts';
import { removeFolder, temporaryFolder } from '../server.ts';

const ALL = { from: null, to: null };

suite('Reading what is still in the log', () => {
  let folder: string;
  let log: LogReader;
  let store: Store;
  let reading: Store;
  beforeEach(() => {
    folder = temporaryFolder();
    log = openEmbeddedLogReader({ folder: logFolderOf(folder), retentionMs: 0, now: Date.now });
    store = openSqliteStore(storeFileOf(folder));
    reading = withPendingRecords(store, log);
  });
  afterEach(async () => {
    await reading.close();
    removeFolder(folder);
  });

  const sumOf = (
    hours: readonly { readonly users: LedgerSums; readonly events: LedgerSums }[],
    name: keyof LedgerSums,
  ): number[] => [
    hours.reduce((sum, { users }) => sum + users[name], 0),
    hours.reduce((sum, { events }) => sum + events[name], 0),
  ];

  test('a cursor of arrivals of another tenant is rejected, since it would skip events', async () => {
    const { last } = await reading.arrivals(TENANT, null, 5);
    assert.deepEqual((await reading.arrivals(TENANT, last, 5)).events, []);
    await assert.rejects(reading.arrivals(OTHER_TENANT, last, 5), {
      name: 'BadCursorError',
      message: /^was given to another account or environment.*"oldest"/,
    });
  });

  test('a cursor of arrivals that was changed or cut is rejected as one that was never issued', async () => {
    const { last } = await reading.arrivals(TENANT, null, 5);
    const changed = last.split('').map((character, at) => {
      return `${last.slice(0, at)}${character === '0' ? '1' : '0'}${last.slice(at + 1)}`;
    });
    for (const damaged of [...changed, last.slice(0, -1), last.slice(1), `${last}.`, last.replaceAll('.', '')]) {
      await assert.rejects(
        reading.arrivals(TENANT, damaged, 5),
        { name: 'BadCursorError', message: /^is not one that this call gave/ },
        damaged,
      );
    }
  });

  test('a cursor of any list is valid for its tenant only, even if the other tenant has no data', async () => {
    const users = (name: string): unknown[] => [
      person({ user_id: `${name}-1` }),
      person({ user_id: `${name}-2` }),
      7,
      8,
    ];
    await appendAll(folder, [request(users('a')), request(users('b'))]);
    await processAll(folder);
    for (const userId of ['a-1', 'b-1']) {
      const profile = await reading.findProfile(TENANT, 'user_id', userId);
      assert.ok(await reading.erase(TENANT, profile?.id ?? '', { traceId: randomUUID(), at: START }));
    }
    const lists: Record<string, (tenantId: string, cursor: string | null) => Promise<Page<unknown> | undefined>> = {
      profiles: (tenantId, cursor) => reading.profiles(tenantId, { limit: 1, cursor }),
      people: (tenantId, cursor) =>
        reading.searchPeople(tenantId, { text: null, exact: [], property: null, budgetMs: 500, limit: 1, cursor }),
      events: (tenantId, cursor) =>
        reading.events(tenantId, { profileId: null, eventName: null, ...ALL, limit: 1, cursor }),
      audit: (tenantId, cursor) => reading.audit(tenantId, { limit: 1, cursor }),
      traces: (tenantId, cursor) => reading.traces(tenantId, { status: null, limit: 1, cursor }),
      rejections: (tenantId, cursor) => reading.rejections(tenantId, { reason: null, ...ALL, limit: 1, cursor }),
    };
    for (const [name, list] of Object.entries(lists)) {
      const cursor = (await list(TENANT, null))?.nextCursor;
      assert.ok(cursor, name);
      assert.equal((await list(TENANT, cursor))?.rows.length, 1, name);
      const refusal = /^was given to another account or environment, or by another installation: leave it out/;
      await assert.rejects(list(OTHER_TENANT, cursor), { name: 'BadCursorError', message: refusal }, name);
      const malformed = { name: 'BadCursorError', message: /send next_cursor of a response as it came/ };
      await assert.rejects(list(TENANT, cursor.split('.')[0] ?? ''), malformed, name);
    }
  });

  test('a trace is pending, with its rejected users, until it is processed', async () => {
    const entry = request([person({ user_id: 'u' }, [{}, {}]), 7], { keyId: 'key_of_app' });
    await appendAll(folder, [request([person({ user_id: 'v' })]), entry]);
    const pending = await reading.trace(TENANT, entry.traceId.toUpperCase());
    assert.equal(pending?.status, 'pending');
    assert.equal(pending.processedAt, null);
    assert.equal(pending.receivedAt, entry.receivedAt);
    assert.equal(pending.keyId, 'key_of_app');
    assert.deepEqual([pending.usersAccepted, pending.usersRejected], [1, 1]);
    assert.deepEqual(
      pending.users.map(({ userIndex, status, message }) => [userIndex, status, message]),
      [
        [0, 'accepted', null],
        [1, 'rejected', 'user must be an object'],
      ],
    );
    assert.equal(await reading.trace(OTHER_TENANT, entry.traceId), undefined);
    assert.deepEqual(await reading.trace(null, entry.traceId), pending);
    await processAll(folder);
    const processed = await reading.trace(TENANT, entry.traceId);
    assert.equal(processed?.status, 'processed');
    assert.equal(processed.keyId, 'key_of_app');
    assert.deepEqual(processed, await store.trace(TENANT, entry.traceId));
  });

  test('an unreadable segment hides only its own requests', async () => {
    const [hidden, shown] = [request([person({ user_id: 'u' })]), request([person({ user_id: 'v' })])];
    await appendAll(folder, [hidden]);
    await appendAll(folder, [shown]);
    const [first] = listSegments(join(folder, 'log'));
    writeFileSync(first?.file ?? '', 'x'.repeat(20_000));
    assert.equal((await reading.trace(TENANT, shown.traceId))?.status, 'pending');
    await assert.rejects(reading.trace(TENANT, hidden.traceId), { name: 'LogCorruptError', message: /is damaged/ });
  });

  test('an unknown trace is not found, and neither is something that is not a trace_id', async () => {
    await appendAll(folder, [request([person({ user_id: 'u' })])]);
    for (const id of ['01957000-0000-7000-8000-00000000ffff', '', 'x', "'; --", '0'.repeat(10_000)]) {
      assert.equal(await reading.trace(TENANT, id), undefined);
    }
  });

  test('a request that is processed between reading the store and reading the log is still found', async () => {
    const entry = request([person({ user_id: 'u' })]);
    await appendAll(folder, [entry]);
    let looks = 0;
    const racing: Store = {
      ...withPendingRecords(store, log),
      trace: async (...args) => {
        const reply = await store.trace(...args);
        looks += 1;
        if (looks === 1) await processAll(folder);
        return reply;
      },
    };
    const trace = await withPendingRecords(racing, log).trace(TENANT, entry.traceId);
    assert.equal(trace?.status, 'processed');
    assert.equal(looks, 2);
  });

  test('a prediction says how many requests of the tenant wait in the log, which it does not consider', async () => {
    const [first, ...others] = ['u', 'v', 'w'].map((id) => request([person({ user_id: id })]));
    assert.ok(first);
    await appendAll(folder, [first]);
    await processAll(folder);
    await appendAll(folder, [...others, request([person({ user_id: 'x' })], { tenantId: OTHER_TENANT })]);
    const predict = async (tenantId: string) => {
      const entry = request([person({ user_id: 'u' }), person({ user_id: 'v' })], { tenantId });
      const record = { ...entry, partition: 0, position: 0 };
      const { users, pendingRequests } = await reading.predict(tenantId, [record]);
      return [pendingRequests, ...users.map(({ isNew }) => isNew)];
    };
    assert.deepEqual(await predict(TENANT), [2, false, true]);
    assert.deepEqual(await predict(OTHER_TENANT), [1, true, true]);
    await processAll(folder);
    assert.deepEqual(await predict(TENANT), [0, false, false]);
  });

  test('a dead letter is pending forever, and says so', async () => {
    const entry = request([person({ user_id: 'u' })]);
    const broken = { ...entry, userCount: 2 };
    await appendAll(folder, [broken]);
    await processAll(folder);
    const trace = await reading.trace(TENANT, entry.traceId);
    assert.equal(trace?.status, 'pending');
    assert.match(trace.users[0]?.warnings[0] ?? '', /dead letter/);
    const [letter] = await reading.deadLetters(1);
    assert.equal(trace.failedAt, letter?.failedAt);
    assert.equal(await reading.trace(OTHER_TENANT, entry.traceId), undefined);
  });

  test('the trace of a dead letter is the same where the log does not have its record (any more)', async () => {
    const entry = request([person({ user_id: 'u' }), 7]);
    await appendAll(folder, [{ ...entry, eventCount: 9 }]);
    await processAll(folder);
    const trace = await reading.trace(TENANT, entry.traceId);
    assert.deepEqual([trace?.usersAccepted, trace?.usersRejected, trace?.users.length], [1, 1, 2]);
    const elsewhere = temporaryFolder();
    const empty = openEmbeddedLogReader({ folder: logFolderOf(elsewhere), retentionMs: 0, now: Date.now });
    const another = withPendingRecords(openSqliteStore(storeFileOf(folder)), empty);
    assert.deepEqual(await another.trace(TENANT, entry.traceId), trace);
    const { rows } = await another.traces(TENANT, { status: 'pending', limit: 5, cursor: null });
    assert.deepEqual(
      rows.map(({ traceId }) => traceId),
      [entry.traceId],
    );
    await another.close();
    removeFolder(elsewhere);
  });

  test('a dead letter whose only person is erased is processed, and says why nothing of it is stored', async () => {
    const entry = request([person({ user_id: 'u' })]);
    await appendAll(folder, [request([person({ user_id: 'u' })]), { ...entry, eventCount: 2 }]);
    await processAll(folder);
    assert.equal((await reading.trace(TENANT, entry.traceId))?.status, 'pending');
    const profile = await reading.findProfile(TENANT, 'user_id', 'u');
    assert.ok(await reading.erase(TENANT, profile?.id ?? '', { traceId: randomUUID(), at: START + 1_000 }));
    const trace = await reading.trace(TENANT, entry.traceId);
    assert.equal(trace?.status, 'processed');
    assert.deepEqual([trace.usersAccepted, trace.usersRejected], [1, 0]);
    assert.match(trace.users[0]?.warnings[0] ?? '', /not stored: this person was erased/);
    const { rows } = await reading.listDeadLetters(TENANT, { cause: null, ...ALL, limit: 5, cursor: null });
    assert.deepEqual(rows, []);
  });

  test('requests in the log are in the list as pending, each once while it is processed', async () => {
    const entries = Array.from({ length: 6 }, (_, n) =>
      request([person({ user_id: `u${n}` }, [{}, {}]), 7], { receivedAt: START + n, keyId: `key_${n}` }),
    );
    await appendAll(folder, entries.slice(0, 3));
    await processAll(folder);
    await appendAll(folder, [...entries.slice(3), request([person({ user_id: 'x' })], { tenantId: OTHER_TENANT })]);
    const list = async (limit: number, status: 'pending' | 'processed' | null = null): Promise<unknown[]> => {
      const rows: unknown[] = [];
      for (let cursor: string | null = null; ; ) {
        const page: Page<TraceSummary> = await reading.traces(TENANT, { limit, cursor, status });
        assert.ok(page.rows.length <= limit);
        rows.push(
          ...page.rows.map((row) => [
            entries.findIndex(({ traceId }) => traceId === row.traceId),
            row.status,
            row.usersAccepted,
            row.usersRejected,
            row.events,
            row.keyId,
          ]),
        );
        cursor = page.nextCursor;
        if (cursor === null) return rows;
      }
    };
    const expected = [5, 4, 3, 2, 1, 0].map((n) => [n, n > 2 ? 'pending' : 'processed', 1, 1, 2, `key_${n}`]);
    for (const limit of [1, 2, 4, 50]) assert.deepEqual(await list(limit), expected);
    assert.deepEqual(await list(2, 'pending'), expected.slice(0, 3));
    assert.deepEqual(await list(2, 'processed'), expected.slice(3));
    await processAll(folder);
    assert.deepEqual(
      await list(4),
      [5, 4, 3, 2, 1, 0].map((n) => [n, 'processed', 1, 1, 2, `key_${n}`]),
    );
    assert.deepEqual(await list(4, 'pending'), []);
  });

  test('what is in the log and not in the store is pending in the ledger, by tenant and hour', async () => {
    const entries = [
      request([person({ user_id: 'u' }, [{}, {}]), 7], { receivedAt: START }),
      request([person({ user_id: 'v' })], { receivedAt: START + 3_600_000 }),
      request([person({ user_id: 'w' })], { receivedAt: START, tenantId: OTHER_TENANT }),
    ];
    await appendAll(folder, entries);
    const { hours } = await reading.ledger(TENANT, ALL);
    assert.deepEqual(
      hours.map(({ hour, users, events, usersRejected }) => [hour, users.pending, events.pending, usersRejected]),
      [
        [START + 3_600_000, 1, 1, 0],
        [START, 1, 2, 1],
      ],
    );
    assert.equal((await reading.ledger(TENANT, { from: START + 3_600_000, to: null })).hours.length, 1);
    assert.equal((await reading.ledger(TENANT, { from: null, to: START + 1 })).hours.length, 1);
    assert.deepEqual(sumOf((await reading.ledger(null, ALL)).hours, 'pending'), [3, 4]);
    await processAll(folder);
    const after = await reading.ledger(TENANT, ALL);
    assert.deepEqual(sumOf(after.hours, 'pending'), [0, 0]);
    assert.deepEqual(sumOf(after.hours, 'received'), sumOf(hours, 'received'));
  });

  test('every event is accounted for at every moment while requests arrive and are processed', async () => {
    const parts: LogEntry[][] = [];
    for (let seed = 0; seed < 6; seed++) parts.push(entriesOf(seed + 100, 40));
    const progress = { isDone: false };
    const working = (async () => {
      for (const [index, part] of parts.entries()) {
        await appendAll(folder, part, index % 2);
        await processAll(folder, { transactionUsersMax: 5, batchBytesMax: 2_000 });
      }
      progress.isDone = true;
    })();
    let looks = 0;
    let received = 0;
    while (!progress.isDone) {
      const { hours } = await reading.ledger(null, ALL);
      for (const { users, events } of hours) {
        assert.equal(differenceOf(users), 0);
        assert.equal(differenceOf(events), 0);
      }
      const [users = 0] = sumOf(hours, 'received');
      assert.ok(users >= received, 'what was received is never less than before');
      received = users;
      looks += 1;
      await new Promise(setImmediate);
    }
    await working;
    assert.ok(looks > 5);
    const sent = parts.flat().reduce((sum, { userCount, rejections }) => sum + userCount - rejections.length, 0);
    const { hours } = await reading.ledger(null, ALL);
    assert.deepEqual(sumOf(hours, 'received')[0], sent);
    assert.deepEqual(sumOf(hours, 'pending'), [0, 0]);
  });

  test('counts by minute of receipt are the same before and after processing', async () => {
    const entries = [
      request([person({ user_id: 'u' }, [{}, {}]), 7], { receivedAt: START }),
      request([person({ user_id: 'v' })], { receivedAt: START + 59_999 }),
      request([person({ user_id: 'w' })], { receivedAt: START + 60_000, tenantId: OTHER_TENANT }),
    ];
    const late = request([person({ user_id: 'x' }, [{}])], { receivedAt: START + 60_000 });
    await appendAll(folder, entries);
    const first = { start: START, usersAccepted: 2, usersRejected: 1, eventsAccepted: 3 };
    assert.deepEqual((await reading.receipts(TENANT, ALL)).minutes, [first]);
    await processAll(folder);
    assert.deepEqual((await reading.receipts(TENANT, ALL)).minutes, [first]);
    // One minute in the store and in the log at once, and one in the log alone.
    await appendAll(folder, [late, request([person({ user_id: 'y' })], { receivedAt: START + 1 })]);
    const second = { start: START + 60_000, usersAccepted: 1, usersRejected: 0, eventsAccepted: 1 };
    const both = [{ ...first, usersAccepted: 3, eventsAccepted: 4 }, second];
    assert.deepEqual((await reading.receipts(TENANT, ALL)).minutes, both);
    assert.deepEqual((await reading.receipts(TENANT, { from: START + 60_001, to: null })).minutes, [second]);
    assert.deepEqual((await reading.receipts(TENANT, { from: null, to: START + 60_000 })).minutes, both.slice(0, 1));
    await processAll(folder);
    assert.deepEqual((await reading.receipts(TENANT, ALL)).minutes, both);
  });

  test('records that leave the log while they are counted are not lost from the ledger', async () => {
    await appendAll(folder, [request([person({ user_id: 'u' })])]);
    await appendAll(folder, [request([person({ user_id: 'v' })])]);
    let isFirst = true;
    const vanishing = override<LogReader>(log, {
      headers: async (partition, position, countMax) => {
        if (isFirst) {
          isFirst = false;
          await processAll(folder);
          // The first segment is processed, too old, and not the newest: it goes.
          await log.commit(0, 1_000);
        }
        return log.headers(partition, position, countMax);
      },
    });
    const { hours } = await withPendingRecords(store, vanishing).ledger(null, ALL);
    assert.deepEqual(sumOf(hours, 'received'), [2, 2]);
    assert.deepEqual(sumOf(hours, 'pending'), [0, 0]);
  });
});
