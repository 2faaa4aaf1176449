/** One stream, on a real connection and by a clock that the tests set. */

import assert from 'node:assert/strict';
import { createServer, get, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { suite, type TestContext, test } from 'node:test';
import { type LiveEvent, liveEvent, LiveFeed, LiveListener } from '../../src/api/live-feed.ts';
import { type ArrivedEvent, BadCursorError, type NewestArrivals, type Store } from '../../src/store.ts';
import { eventually } from '../server.ts';
import { EVENT } from './canned-store.ts';

const NO_FILTER = { eventName: null, profileId: null, keyId: null, includesPerson: false, showsPersonal: false };
const START = 1_000_000;

async function listen(context: TestContext, isReading = true) {
  const opened = Promise.withResolvers<ServerResponse>();
  const server = createServer((_request, response) => opened.resolve(response)).listen(0, '127.0.0.1');
  await new Promise((resolve) => {
    server.once('listening', resolve);
  });
  const { port } = server.address() as AddressInfo;
  let text = '';
  let isOver = false;
  const responded = new Promise<IncomingMessage>((resolve) => {
    get({ port, host: '127.0.0.1', agent: false }, resolve).on('error', () => {});
  });
  const response = await opened.promise;
  const start = { cursor: 'start', sequence: 0 };
  const parts = { filter: NO_FILTER, start, now: START };
  const listener = new LiveListener(response, parts);
  const incoming = await responded;
  incoming
    .on('error', () => {})
    .on('close', () => {
      isOver = true;
    });
  if (isReading) {
    incoming.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
  }
  context.after(() => {
    incoming.destroy();
    server.close();
  });
  const comes = (what: string): Promise<unknown> => eventually(what, () => text.includes(what));
  const shown = (): string[] =>
    [...text.matchAll(/id: cursor-(\d+)\nevent: (\w+)/g)].map(([, cursor, name]) => `${name} ${cursor}`);
  return { listener, response, comes, shown, text: () => text, isOver: () => isOver };
}

function arrived(sequence: number, more: Partial<ArrivedEvent> = {}): ArrivedEvent {
  return { ...EVENT, sequence, cursor: `cursor-${sequence}`, ...more };
}

function event(sequence: number, more: Partial<ArrivedEvent> = {}): LiveEvent {
  return liveEvent(arrived(sequence, more), undefined);
}

function events(from: number, to: number): LiveEvent[] {
  return Array.from({ length: to - from + 1 }, (_, n) => event(from + n));
}

function skippedUpTo(sequence: number, count: number): NonNullable<NewestArrivals['skipped']> {
  return { events: count, cursor: `cursor-${sequence}`, sequence };
}

function numbered(from: number, to: number): string[] {
  return events(from, to).map(({ sequence }) => `event ${sequence}`);
}

suite('A live stream', () => {
  test('gives a sign of life every 15 seconds, with the cursor that it has come to', async (t) => {
    const { listener, comes, text } = await listen(t);
    listener.at = { cursor: 'further', sequence: 9 };
    listener.tick(START + 14_999);
    listener.tick(START + 15_000);
    await comes(': still here\nid: further\n\n');
    listener.tick(START + 29_999);
    listener.tick(START + 30_000);
    await eventually('another', () => text().split('still here').length === 3);
  });

  test('passes over what it has had, and writes JSON on one line', async (t) => {
    const { listener, comes, text } = await listen(t);
    listener.offer([event(1), event(1)], null, START);
    listener.offer([event(1), event(2, { properties: '{"a":\r\n[1,\n2]}' })], null, START);
    await comes('id: cursor-2\n');
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
    const { listener, comes, shown } = await listen(t);
    listener.offer(events(251, 300), skippedUpTo(250, 250), START);
    await comes('id: cursor-300\n');
    assert.deepEqual(shown(), ['skipped 250', ...numbered(251, 300)]);
  });

  test('shows 50 a second, and keeps the newest of what comes meanwhile for the next', async (t) => {
    const { listener, comes, shown, text } = await listen(t);
    listener.offer(events(1, 40), null, START);
    listener.offer(events(41, 70), null, START + 100);
    listener.offer(events(81, 130), skippedUpTo(80, 10), START + 300);
    listener.tick(START + 999);
    await comes('id: cursor-50\n');
    assert.ok(!text().includes('id: cursor-51\n') && !text().includes('skipped'));
    listener.tick(START + 1_000);
    await comes('id: cursor-130\n');
    assert.deepEqual(shown(), [...numbered(1, 50), 'skipped 80', ...numbered(81, 130)]);
    assert.ok(text().includes('data: {"events":30}'));
  });

  test('skips what is larger than a page can show, and says where', async (t) => {
    const { listener, comes, shown } = await listen(t);
    const large = { properties: JSON.stringify({ x: 'x'.repeat(1_100_000) }) };
    listener.offer([event(1), event(2, large), event(3), event(4, large)], null, START);
    listener.tick(START + 1_000);
    await comes('id: cursor-4\nevent: skipped\ndata: {"events":1}');
    assert.deepEqual(shown(), ['event 1', 'skipped 2', 'event 3', 'skipped 4']);
  });

  test('holds a bounded part for a reader who does not read, and lets that one go after 30 seconds', async (t) => {
    const { listener, response, isOver } = await listen(t, false);
    const large = JSON.stringify({ x: 'x'.repeat(900_000) });
    for (let n = 1; n <= 40; n++) listener.offer([event(n, { properties: large })], null, START + n * 1_000);
    assert.ok(response.writableLength > 2_000_000 && response.writableLength < 4_000_000, `${response.writableLength}`);
    listener.tick(START + 50_000);
    listener.tick(START + 79_999);
    assert.ok(listener.isOpen && !isOver());
    listener.tick(START + 80_000);
    await eventually('it is let go', () => !listener.isOpen);
  });

  test('ends when it is closed, also for a reader who does not read', async (t) => {
    const { listener, isOver } = await listen(t);
    listener.close();
    await eventually('the reader hears it', isOver);
    const stuck = await listen(t, false);
    const large = JSON.stringify({ x: 'x'.repeat(900_000) });
    for (let n = 1; n <= 20; n++) stuck.listener.offer([event(n, { properties: large })], null, START);
    stuck.listener.close();
    await eventually('its connection is gone', () => stuck.response.destroyed);
  });
});

function feedOf(
  t: TestContext,
  newestArrivals: Store['newestArrivals'],
  onUnavailable: (error: Error) => void = (error) => assert.fail(error),
): LiveFeed {
  const store = { newestArrivals } as Store;
  const feed = new LiveFeed({
    planOf: async () => null,
    store,
    storedEvents: () => 0,
    now: () => START,
    onUnavailable,
  });
  t.after(() => feed.close());
  return feed;
}

suite('A live stream that comes back far behind another', () => {
  const STORED = 12_000;
  const LOOKED_THROUGH = 5_000;

  test('is offered all that came meanwhile: what it cannot show is counted, never left out in silence', async (t) => {
    const all = Array.from({ length: STORED }, (_, n) => arrived(n + 1));
    const newestArrivals: Store['newestArrivals'] = (_tenant, after, _filter, limit) => {
      const from = Number(after.replace('cursor-', '').replace('start', '0'));
      const seen = all.slice(from, from + LOOKED_THROUGH);
      const [left, page] = [seen.slice(0, -limit), seen.slice(-limit)];
      const last = page.at(-1)?.sequence ?? from;
      const skipped = left.length === 0 ? null : skippedUpTo(last - page.length, left.length);
      return Promise.resolve({ events: page, last: `cursor-${last}`, lastSequence: last, skipped });
    };
    const feed = feedOf(t, newestArrivals);
    const [level, behind] = [await listen(t), await listen(t)];
    level.listener.at = { cursor: `cursor-${STORED}`, sequence: STORED };
    feed.add('acct_a/production', level.listener);
    feed.add('acct_a/production', behind.listener);
    const reported = await eventually('all of it was shown or reported as skipped', () => {
      behind.listener.tick(START + 10_000);
      const skipped = [...behind.text().matchAll(/event: skipped\ndata: \{"events":(\d+)\}/g)];
      const shown = behind.text().match(/^event: event$/gm)?.length ?? 0;
      const sum = skipped.reduce((total, [, events]) => total + Number(events), shown);
      return sum >= STORED - 50 ? sum : null;
    });
    // At most a second's worth still waits to be shown.
    assert.ok(reported <= STORED);
  });

  test('does not hold up those that are level', async (t) => {
    const all = Array.from({ length: 3 }, (_, n) => arrived(n + 1));
    const waits = Promise.withResolvers<void>();
    const slow = Promise.withResolvers<void>();
    const newestArrivals: Store['newestArrivals'] = async (_tenant, after) => {
      const from = Number(after.replace('cursor-', '').replace('start', '0'));
      // A stream that starts at the beginning reads one event, and then waits for the next.
      if (from === 1) {
        waits.resolve();
        await slow.promise;
      }
      const events = all.slice(from, from + 1);
      const last = from + events.length;
      return { events, last: `cursor-${last}`, lastSequence: last, skipped: null };
    };
    const feed = feedOf(t, newestArrivals);
    const [level, behind] = [await listen(t), await listen(t)];
    level.listener.at = { cursor: 'cursor-3', sequence: 3 };
    feed.add('acct_a/production', level.listener);
    feed.add('acct_a/production', behind.listener);
    await waits.promise;
    for (const next of [4, 5]) {
      all.push(arrived(next));
      await eventually(`the level stream shows event ${next}`, () => level.text().includes(`id: cursor-${next}`));
    }
    slow.resolve();
  });
});

suite('A live stream of a store that other servers write to', () => {
  test('shows what they stored, though this server stores nothing', async (t) => {
    const stored = [arrived(1)];
    const newestArrivals: Store['newestArrivals'] = async (_tenant, after) => {
      const from = Number(after.replace('cursor-', '').replace('start', '0'));
      const last = stored.length;
      return { events: stored.slice(from), last: `cursor-${last}`, lastSequence: last, skipped: null };
    };
    const feed = feedOf(t, newestArrivals);
    const { listener, comes } = await listen(t);
    feed.add('acct_a/production', listener);
    await comes('id: cursor-1\n');
    stored.push(arrived(2));
    await comes('id: cursor-2\n');
  });
});

suite('A live stream whose store was set back', () => {
  test('ends, so that its client comes back with its cursor and gets an error that says what to do; a new one starts', async (t) => {
    const newestArrivals: Store['newestArrivals'] = async (_tenant, after) => {
      if (after === 'start') throw new BadCursorError('is of another history');
      const events = after === 'cursor-1' ? [arrived(2)] : [];
      return { events, last: 'cursor-2', lastSequence: 2, skipped: null };
    };
    const reasons: string[] = [];
    const feed = feedOf(t, newestArrivals, ({ message }) => reasons.push(message));
    const [old, fresh] = [await listen(t), await listen(t)];
    feed.add('acct_a/production', old.listener);
    await eventually('the stream ends', old.isOver);
    assert.deepEqual(reasons, ['is of another history']);
    fresh.listener.at = { cursor: 'cursor-1', sequence: 1 };
    feed.add('acct_a/production', fresh.listener);
    await fresh.comes('cursor-2');
  });
});
