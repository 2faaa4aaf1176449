import assert from 'node:assert/strict';
import test from 'node:test';
import {
  changeLive,
  LISTED_MAX,
  type LiveEvents,
  NO_EVENTS,
  ROWS_MAX,
  summaryOf,
} from '../../dashboard/src/pages/live-events.ts';

type Event = LiveEvents['shown'][number];

function event(n: number): Event {
  const at = new Date(Date.UTC(2026, 10, 15, 9) + n).toISOString();
  return {
    id: `e${n}`,
    event_name: 'page_viewed',
    timestamp: at,
    received_at: at,
    revenue: null,
    event_value: null,
    properties: {},
    profile_id: null,
    trace_id: `t${n}`,
    userIndex: 0,
    key_id: 'key_1',
  };
}

const events = (from: number, to: number): Event[] => Array.from({ length: to - from }, (_, n) => event(from + n));
const ids = (list: readonly Event[]): string[] => list.map(({ id }) => id);

test('an event that is listed and streamed is shown once, and the newest is first', () => {
  let live = changeLive(NO_EVENTS, { kind: 'arrived', events: [event(3)], how: 'show', openId: '' });
  live = changeLive(live, { kind: 'listed', events: [event(3), event(2), event(1)], how: 'show', openId: '' });
  live = changeLive(live, { kind: 'arrived', events: [event(4), event(2)], how: 'show', openId: '' });
  assert.deepEqual(ids(live.shown), ['e4', 'e3', 'e2', 'e1']);
});

test('of one request the last event is first, in whatever order and parts they come', () => {
  const ofRequest = (userIndex: number, eventIndex: number): Event => ({
    ...event(1),
    id: `t1.${userIndex}.${eventIndex}`,
    userIndex,
  });
  const sent = [0, 1, 9, 10, 11].flatMap((user) => [0, 2, 10].map((index) => ofRequest(user, index)));
  const newestFirst = ids(sent).toReversed();
  const atOnce = changeLive(NO_EVENTS, { kind: 'arrived', events: sent, how: 'show', openId: '' });
  assert.deepEqual(ids(atOnce.shown), newestFirst);
  let inParts = changeLive(NO_EVENTS, { kind: 'listed', events: sent.toReversed().slice(4), how: 'show', openId: '' });
  inParts = changeLive(inParts, { kind: 'arrived', events: sent.slice(-4), how: 'show', openId: '' });
  assert.deepEqual(ids(inParts.shown), newestFirst);
});

test('no more than 200 rows are kept, but the one that is open stays', () => {
  let live = changeLive(NO_EVENTS, { kind: 'arrived', events: events(0, 150), how: 'show', openId: '' });
  live = changeLive(live, { kind: 'arrived', events: events(150, 400), how: 'show', openId: 'e7' });
  assert.equal(live.shown.length, ROWS_MAX + 1);
  assert.equal(live.shown[0]?.id, 'e399');
  assert.equal(live.shown.at(-1)?.id, 'e7');
});

test('while a person reads, rows stay as they are until the new ones are asked for', () => {
  const before = changeLive(NO_EVENTS, { kind: 'listed', events: events(0, 3), how: 'show', openId: '' });
  let live = changeLive(before, { kind: 'arrived', events: events(3, 5), how: 'hold', openId: 'e1' });
  live = changeLive(live, { kind: 'listed', events: events(2, 6), how: 'hold', openId: 'e1' });
  assert.equal(live.shown, before.shown);
  assert.equal(live.heldCount, 3);
  live = changeLive(live, { kind: 'show held', openId: 'e1' });
  assert.deepEqual(ids(live.shown), ['e5', 'e4', 'e3', 'e2', 'e1', 'e0']);
  assert.equal(live.heldCount, 0);
});

test('what comes while paused is counted and not kept, and what is more than gets listed is said to be left out', () => {
  const before = changeLive(NO_EVENTS, { kind: 'listed', events: events(0, 3), how: 'show', openId: '' });
  let live = changeLive(before, { kind: 'arrived', events: events(3, 3 + LISTED_MAX), how: 'count', openId: '' });
  live = changeLive(live, { kind: 'arrived', events: events(100, 107), how: 'count', openId: '' });
  assert.equal(live.shown, before.shown);
  assert.equal(live.missedCount, LISTED_MAX + 7);
  live = changeLive(live, { kind: 'go on' });
  assert.equal(live.missedCount, 0);
  assert.equal(live.skippedCount, 7);
});

test('what the server left out in bursts adds up', () => {
  const once = changeLive(NO_EVENTS, { kind: 'skipped', events: 40 });
  assert.equal(changeLive(once, { kind: 'skipped', events: 2 }).skippedCount, 42);
});

test('a summary is a few short texts, whatever was sent', () => {
  const properties: Record<string, unknown> = {
    html: '<b>x</b>',
    list: [1, { a: null }],
    long: `${'x'.repeat(38)}😀y`,
  };
  Object.defineProperty(properties, '__proto__', { value: 1, enumerable: true });
  properties['left'] = 'out';
  assert.deepEqual(summaryOf(properties), [
    { name: 'html', value: '<b>x</b>' },
    { name: 'list', value: '[1,{"a":null}]' },
    { name: 'long', value: `${'x'.repeat(38)}…` },
    { name: '__proto__', value: '1' },
  ]);
});

test('older events that were asked for stay until new ones push all of them out', () => {
  let live = changeLive(NO_EVENTS, { kind: 'arrived', events: events(300, 500), how: 'show', openId: '' });
  live = changeLive(live, { kind: 'older', events: events(100, 310) });
  assert.equal(live.shown.length, ROWS_MAX + 200);
  assert.deepEqual([live.shown.at(-1)?.id, live.olderCount, live.cuts], ['e100', 200, 0]);
  live = changeLive(live, { kind: 'arrived', events: [event(501)], how: 'hold', openId: '' });
  assert.equal(live.shown.length, ROWS_MAX + 200);
  // Continuing from e100 now would leave a gap below e301: `cuts` says that it has to start over.
  live = changeLive(live, { kind: 'show held', openId: '' });
  assert.equal(live.shown.length, ROWS_MAX);
  assert.deepEqual([live.shown.at(-1)?.id, live.olderCount, live.cuts], ['e301', null, 1]);
  live = changeLive(live, { kind: 'arrived', events: [event(502)], how: 'show', openId: '' });
  assert.equal(live.cuts, 1);
});
