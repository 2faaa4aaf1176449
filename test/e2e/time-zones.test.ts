/**
 * Timestamps in every form of ISO 8601, around the hours in which clocks are put forward and back, land in the same
 * bucket of UTC whatever time zone the server runs in. The zones have odd offsets and their own summer time.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allEvents, settled } from '../faults/processor-load.ts';
import { folderIn, launch } from '../faults/scope.ts';
import { post, read } from '../server.ts';

const ZONES = ['UTC', 'America/St_Johns', 'Asia/Kathmandu'];

/** As sent, and the moment in UTC. */
const TIMES: readonly (readonly [sent: string, moment: string])[] = [
  // New York puts its clocks forward at 2:00 on 8 March 2026, and back at 2:00 on 1 November.
  ['2026-03-08T01:59:59-05:00', '2026-03-08T06:59:59.000Z'],
  ['2026-03-08T03:00:00-04:00', '2026-03-08T07:00:00.000Z'],
  ['2026-11-01T01:30:00-04:00', '2026-11-01T05:30:00.000Z'],
  ['2026-11-01T01:30:00-05:00', '2026-11-01T06:30:00.000Z'],
  // A time that no clock in New York shows that day is a time like any other in UTC.
  ['2026-03-08T02:30:00', '2026-03-08T02:30:00.000Z'],
  // St. John's, the zone of one of the servers, does so by half past.
  ['2026-03-08T02:30:00-03:30', '2026-03-08T06:00:00.000Z'],
  ['2026-11-01T00:00:30-02:30', '2026-11-01T02:30:30.000Z'],
  // Berlin, 29 March and 25 October.
  ['2026-03-29T01:59:59.999+01:00', '2026-03-29T00:59:59.999Z'],
  ['2026-03-29T03:00+02:00', '2026-03-29T01:00:00.000Z'],
  ['20261025T023000+0200', '2026-10-25T00:30:00.000Z'],
  ['20261025T023000+0100', '2026-10-25T01:30:00.000Z'],
  // Days end elsewhere at another time.
  ['2026-12-31T23:59:59.999Z', '2026-12-31T23:59:59.999Z'],
  ['2027-01-01T05:44:59+05:45', '2026-12-31T23:59:59.000Z'],
  ['2027-01-01T05:45:00+05:45', '2027-01-01T00:00:00.000Z'],
  ['2026-06-15', '2026-06-15T00:00:00.000Z'],
  ['20260615', '2026-06-15T00:00:00.000Z'],
  ['2026-06-15T00:00:00+14:00', '2026-06-14T10:00:00.000Z'],
  ['2026-06-15T23:30-11:00', '2026-06-16T10:30:00.000Z'],
  ['2026-06-15T12,5Z', '2026-06-15T12:30:00.000Z'],
  ['2026-06-15T12:00:59.9999Z', '2026-06-15T12:00:59.999Z'],
  ['2024-02-29T23:59:60Z', '2024-03-01T00:00:00.000Z'],
  ['1969-12-31T23:59:59.999Z', '1969-12-31T23:59:59.999Z'],
];

const WIDTHS = { minute: 16, hour: 13, day: 10 } as const;
const RANGES: Record<keyof typeof WIDTHS, readonly (readonly [from: string, to: string])[]> = {
  minute: [...new Set(TIMES.map(([, moment]) => moment.slice(0, 10)))].map((day) => [day, dayAfter(day)]),
  hour: [['2026-01-01', '2027-02-01']],
  day: [
    ['1969-01-01', '1970-06-01'],
    ['2024-01-01', '2027-02-01'],
  ],
};

function dayAfter(day: string): string {
  return new Date(Date.parse(day) + 86_400_000).toISOString().slice(0, 10);
}

interface Bucket {
  readonly start: string;
  readonly events: number;
}

/** What the buckets must be, by the text of the moments alone. */
function expectedBuckets(interval: keyof typeof WIDTHS, from: string, to: string): Map<string, number> {
  const buckets = new Map<string, number>();
  for (const [, moment] of TIMES) {
    if (moment < from || moment >= to) continue;
    const start = moment.slice(0, WIDTHS[interval]) + '0000-00-00T00:00:00.000Z'.slice(WIDTHS[interval]);
    buckets.set(start, (buckets.get(start) ?? 0) + 1);
  }
  return buckets;
}

for (const zone of ZONES) {
  test(`a server in ${zone} counts events in the minutes, hours and days of UTC`, async () => {
    await using scope = new AsyncDisposableStack();
    const server = await launch(scope, { dataFolder: folderIn(scope), env: { TZ: zone } });
    const { key } = server;
    const events = TIMES.map(([timestamp, moment]) => ({ event_name: 'timed', timestamp, mark: moment }));
    const sent = await post(server, key, { users: [{ identifiers: { user_id: 'ada' }, events }] });
    assert.equal(sent.status, 202, sent.text);
    await settled(server, key);

    const stored = await allEvents(server, key);
    assert.equal(stored.length, TIMES.length);
    for (const { timestamp, properties } of stored) assert.equal(timestamp, properties.mark);
    const times = stored.map(({ timestamp }) => timestamp);
    assert.deepEqual(times, times.toSorted().toReversed());

    for (const interval of ['minute', 'hour', 'day'] as const) {
      for (const [from, to] of RANGES[interval]) {
        const path = `/events/counts?interval=${interval}&from=${from}&to=${to}`;
        const { buckets } = await read<{ buckets: Bucket[] }>(server, key, path);
        const found = new Map(buckets.map(({ start, events }) => [start, events]));
        assert.deepEqual(found, expectedBuckets(interval, from, to), `${interval} ${from}`);
      }
    }
  });
}
