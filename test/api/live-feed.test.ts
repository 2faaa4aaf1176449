/** Streams as text, from a store in memory and by a clock that the tests set. */

import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import { suite, type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { LiveFeed } from '../../src/api/live-feed.ts';
import { type ArrivedEvent, BadCursorError, type Store } from '../../src/store.ts';
import { eventually } from '../server.ts';
import { EVENT } from './canned-store.ts';

const TENANT = 'acct_a/production';
const NO_FILTER = { eventName: null, profileId: null, keyId: null, includesPerson: false, showsPersonal: false };
const START = 1_000_000;
/** Events that the store looks through in one call. */
const LOOKED_THROUGH = 5_000;

/** A feed on a store of numbered events, whose cursors are their numbers: `start` is before the first. */
function feedOn(t: TestContext, { storesItself = true }: { readonly storesItself?: boolean } = {}) {
  const stored: ArrivedEvent[] = [];
  const reads: string[] = [];
  const reasons: string[] = [];
  const clock = { now: START };
  let polls = 0;
  let beforeReading = async (_from: number): Promise<void> => {};
  const newestArrivals: Store['newestArrivals'] = async (_tenant, after, _filter, limit) => {
    reads.push(after);
    const from = Number(after.replace('start', '0').replace('cursor-', ''));
    await beforeReading(from);
    const seen = stored.slice(from, from + LOOKED_THROUGH);
    const skipped = seen.slice(0, -limit);
    const last = from + seen.length;
    return {
      events: seen.slice(-limit),
      last: seen.length === 0 ? after : `cursor-${last}`,
      skipped: skipped.length === 0 ? null : { events: skipped.length, cursor: `cursor-${from + skipped.length}` },
    };
  };
  const feed = new LiveFeed({
    planOf: async () => null,
    store: { newestArrivals } as Store,
    // Every poll reads, unless others store.
    storedEvents: () => {
      polls += 1;
      return storesItself ? polls : 0;
    },
    now: () => clock.now,
    onUnavailable: ({ message }) => reasons.push(message),
  });
  t.after(() => feed.close());
  const store = (count: number, more: Partial<ArrivedEvent> = {}): void => {
    for (let n = 0; n < count; n++) stored.push({ ...EVENT, cursor: `cursor-${stored.length + 1}`, ...more });
  };
  const stream = (cursor = 'start', isOver = async (): Promise<boolean> => false) =>
    feed.stream({ tenantId: TENANT, filter: NO_FILTER, cursor }, isOver);
  /** Reads a stream to its end. */
  const follow = (...parts: Parameters<typeof stream>) => {
    let text = '';
    let isOver = false;
    const read = async (): Promise<void> => {
      for await (const part of stream(...parts)) text += part.toString();
      isOver = true;
    };
    void read();
    return {
      comes: (what: string) => eventually(what, () => text.includes(what)),
      shown: () => [...text.matchAll(/id: cursor-(\d+)\nevent: (\w+)/g)].map(([, cursor, name]) => `${name} ${cursor}`),
      text: () => text,
      isOver: () => isOver,
    };
  };
  const isRead = (times: number): Promise<unknown> => {
    const before = reads.length;
    return eventually('the store is read', () => reads.length >= before + times);
  };
  const beforeEachRead = (wait: typeof beforeReading): void => void (beforeReading = wait);
  return { feed, clock, polls: () => polls, reads, reasons, store, stream, follow, isRead, beforeEachRead };
}

function numbered(from: number, to: number): string[] {
  return Array.from({ length: to - from + 1 }, (_, n) => `event ${from + n}`);
}

const largeOf = (length: number): Partial<ArrivedEvent> => ({ properties: JSON.stringify({ x: 'x'.repeat(length) }) });

suite('A live stream', () => {
  test('gives a sign of life every 15 seconds, with the cursor that it has come to', async (t) => {
    const { clock, follow, isRead } = feedOn(t);
    const { comes, text } = follow('cursor-9');
    await comes('id: cursor-9\n\n');
    clock.now = START + 14_999;
    await isRead(2);
    assert.ok(!text().includes('still here'));
    clock.now = START + 15_000;
    await comes(': still here\nid: cursor-9\n\n');
    clock.now = START + 29_999;
    await isRead(2);
    assert.equal(text().split('still here').length, 2);
    clock.now = START + 30_000;
    await eventually('another', () => text().split('still here').length === 3);
  });

  test('writes JSON on one line', async (t) => {
    const { store, follow } = feedOn(t);
    store(1);
    store(1, { properties: '{"a":\r\n[1,\n2]}' });
    const { comes, text } = follow();
    await comes('[1, 2]');
    const messages = text().split('\n\n').slice(1, -1);
    assert.deepEqual(
      messages.map((message) => message.split('\n').map((line) => line.slice(0, 5))),
      [
        ['id: c', 'event', 'data:'],
        ['id: c', 'event', 'data:'],
      ],
    );
  });

  test('shows the last 50 of a burst, and says where it left events out', async (t) => {
    const { store, follow } = feedOn(t);
    store(300);
    const { comes, shown, text } = follow();
    await comes('id: cursor-300\n');
    assert.deepEqual(shown(), ['skipped 250', ...numbered(251, 300)]);
    assert.ok(text().includes('data: {"events":250}'));
  });

  test('shows 50 a second, and keeps the newest of what comes meanwhile for the next', async (t) => {
    const { clock, store, follow, isRead } = feedOn(t);
    store(40);
    const { comes, shown, text } = follow();
    await comes('id: cursor-40\n');
    store(30);
    await comes('id: cursor-50\n');
    store(60);
    clock.now = START + 999;
    await isRead(3);
    assert.deepEqual(shown(), numbered(1, 50));
    clock.now = START + 1_000;
    await comes('id: cursor-130\n');
    assert.deepEqual(shown(), [...numbered(1, 50), 'skipped 80', ...numbered(81, 130)]);
    assert.ok(text().includes('data: {"events":30}'));
  });

  test('skips what is larger than a page can show, and says where', async (t) => {
    const { store, follow } = feedOn(t);
    store(1);
    store(1, largeOf(1_100_000));
    store(1);
    store(1, largeOf(1_100_000));
    const { comes, shown } = follow();
    await comes('id: cursor-4\nevent: skipped\ndata: {"events":1}');
    assert.deepEqual(shown(), ['event 1', 'skipped 2', 'event 3', 'skipped 4']);
  });

  test('reads no faster than its client: what waits is bounded, and what that misses is counted', async (t) => {
    const { reads, store, stream } = feedOn(t);
    store(40, largeOf(900_000));
    const reading = stream();
    await reading.next();
    assert.equal(reads.length, 0);
    const first = String((await reading.next()).value);
    assert.ok(first.length < 2_100_000, `${first.length}`);
    assert.match(first, /^id: cursor-38\nevent: skipped\ndata: \{"events":38\}\n\nid: cursor-39\n/);
    const readBefore = reads.length;
    store(200);
    await sleep(700);
    assert.equal(reads.length, readBefore);
    assert.match(String((await reading.next()).value), /^id: cursor-190\nevent: skipped\ndata: \{"events":150\}\n/);
    await reading.return();
  });

  test('ends when the feed is closed, and when it is over', async (t) => {
    const { feed, follow } = feedOn(t);
    let isOver = false;
    const [one, other] = [follow('start', async () => isOver), follow()];
    await other.comes('id: start\n\n');
    isOver = true;
    await eventually('the one ends', one.isOver);
    assert.ok(!other.isOver());
    feed.close();
    await eventually('the other ends', other.isOver);
  });

  test('shows what other servers store, though this server stores nothing', async (t) => {
    const { store, follow } = feedOn(t, { storesItself: false });
    store(1);
    const { comes } = follow();
    await comes('id: cursor-1\n');
    store(1);
    await comes('id: cursor-2\n');
  });
});

suite('Live streams together', () => {
  test('read together once they are level', async (t) => {
    const { polls, store, follow, isRead } = feedOn(t);
    store(3);
    const streams = ['start', 'start', 'start', 'cursor-2'].map((cursor) => follow(cursor));
    store(1);
    for (const { comes } of streams) await comes('id: cursor-4\n');
    await isRead(2);
    const before = polls();
    await isRead(5);
    // Each of the four polls for itself.
    assert.ok(polls() - before >= 4 * 4, `${polls() - before} polls`);
  });

  test('one that comes back far behind is given all that came meanwhile, shown or counted', async (t) => {
    const { clock, store, follow } = feedOn(t);
    const STORED = 12_000;
    store(STORED);
    follow(`cursor-${STORED}`);
    const behind = follow();
    const sum = await eventually('all of it was shown or reported as skipped', () => {
      clock.now += 1_000;
      const skipped = [...behind.text().matchAll(/event: skipped\ndata: \{"events":(\d+)\}/g)];
      const shown = behind.text().match(/^event: event$/gm)?.length ?? 0;
      const total = skipped.reduce((events, [, more]) => events + Number(more), shown);
      return total >= STORED ? total : null;
    });
    assert.equal(sum, STORED);
  });

  test('one that is slow to read the store does not hold up those that are level', async (t) => {
    const { store, follow, beforeEachRead } = feedOn(t);
    store(3);
    const waits = Promise.withResolvers<void>();
    const slow = Promise.withResolvers<void>();
    beforeEachRead(async (from) => {
      if (from > 0) return;
      waits.resolve();
      await slow.promise;
    });
    const [level, behind] = [follow('cursor-3'), follow()];
    await waits.promise;
    for (const next of [4, 5]) {
      store(1);
      await level.comes(`id: cursor-${next}\n`);
    }
    slow.resolve();
    await behind.comes('id: cursor-5\n');
  });

  test('at most 20 of a tenant and 200 in all have a place, until their responses are closed', (t) => {
    const { feed } = feedOn(t);
    const open = (tenant: number): EventEmitter | null => {
      const response = new EventEmitter();
      return feed.open(`acct_${tenant}/production`, response as ServerResponse) ? response : null;
    };
    for (let tenant = 0; tenant < 10; tenant++) {
      for (let n = 0; n < 19; n++) assert.ok(open(tenant));
      const last = open(tenant);
      assert.ok(last);
      assert.equal(open(tenant), null);
      last.emit('close');
      assert.ok(open(tenant));
    }
    assert.equal(open(10), null);
  });
});

suite('A live stream whose store was set back', () => {
  test('ends, so that its client comes back with its cursor and gets an error that says what to do; a new one starts', async (t) => {
    const { reasons, store, follow, beforeEachRead } = feedOn(t);
    store(2);
    beforeEachRead(async (from) => {
      if (from === 0) throw new BadCursorError('is of another history');
    });
    const old = follow();
    await eventually('the stream ends', old.isOver);
    assert.deepEqual(reasons, ['is of another history']);
    await follow('cursor-1').comes('cursor-2');
  });

  test('goes on after the store was unavailable for a while', async (t) => {
    const { reasons, store, follow, beforeEachRead } = feedOn(t);
    store(1);
    beforeEachRead(async () => {
      throw new Error('the store is unavailable');
    });
    const { comes } = follow();
    await eventually('it was tried again', () => reasons.length >= 2);
    beforeEachRead(async () => {});
    await comes('id: cursor-1\n');
  });
});
