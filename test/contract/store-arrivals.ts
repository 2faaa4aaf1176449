/** The contract of the store: how long a cursor of arrivals is valid, and that no event is missed without an error. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { type ArrivalFilter, type ArrivedEvent, BadCursorError } from '../../src/store.ts';
import { OLDEST } from '../../src/views/cursor.ts';
import {
  DAY_MS,
  eventsOf,
  type OpenStore,
  OTHER_TENANT,
  person,
  profileOf,
  START,
  type StoreUnderTest,
  send,
  sweepAll,
  TENANT,
} from './store-feeding.ts';

/** The words of a cursor of arrivals: the name of the list, the installation, then numbers. */
export function cursorWords(cursor: string): string[] {
  return Buffer.from(cursor, 'base64url').toString('latin1').split(' ');
}

export function cursorFrom(words: readonly (string | number)[]): string {
  return Buffer.from(words.join(' ')).toString('base64url');
}

/** Everything that arrived after a cursor, in small pages, and the cursor after it. */
export async function arrivedAfter(
  { store }: Pick<StoreUnderTest, 'store'>,
  after: string,
  tenantId = TENANT,
  limit = 3,
): Promise<{ readonly events: ArrivedEvent[]; readonly last: string }> {
  const events: ArrivedEvent[] = [];
  let last = after;
  // The end itself moves on with whatever else the server does, and a page may be empty before the end.
  for (let emptyPages = 0; emptyPages < 3; ) {
    const page = await store.arrivals(tenantId, last, limit);
    events.push(...page.events);
    emptyPages = page.events.length === 0 ? emptyPages + 1 : 0;
    last = page.last;
  }
  return { events, last };
}

const ANY: ArrivalFilter = { eventName: null, profileId: null, keyId: null };

function refusedBecause(pattern: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof BadCursorError && pattern.test(error.message);
}

export function storeArrivalsContract(open: OpenStore): void {
  suite('cursors of arrivals', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    const tracesAfter = async (after: string): Promise<string[]> =>
      (await arrivedAfter(under, after)).events.map(({ traceId }) => traceId);

    /** A request of two events a day, the first at START, and the cursor after each. */
    async function sendDays(days: number): Promise<{ traces: string[]; cursors: string[] }> {
      const [traces, cursors]: [string[], string[]] = [[], []];
      for (let day = 0; day < days; day++) {
        const about = { receivedAt: START + day * DAY_MS };
        await send(under, [person({ user_id: 'noise' })], { ...about, tenantId: OTHER_TENANT });
        traces.push(await send(under, [person({ user_id: 'u' }, [{}, {}])], about));
        cursors.push((await under.store.arrivals(TENANT, null, 1)).last);
      }
      return { traces, cursors };
    }
    const twice = (traces: readonly string[]): string[] => traces.flatMap((traceId) => [traceId, traceId]);

    test('"oldest" reads all that is stored, in the order of arrival', async () => {
      assert.deepEqual(await tracesAfter(OLDEST), []);
      const { traces } = await sendDays(4);
      assert.deepEqual(await tracesAfter(OLDEST), twice(traces));
      assert.deepEqual((await arrivedAfter(under, OLDEST, 'acct_unknown/production')).events, []);
    });

    test('a cursor is good for as long as the events are kept, however long ago it was given', async () => {
      const { traces, cursors } = await sendDays(3);
      // Far beyond all that is removed by age but events.
      await sweepAll(under, {}, START + 300 * DAY_MS);
      for (const [day, cursor] of cursors.entries()) {
        assert.deepEqual(await tracesAfter(cursor), twice(traces.slice(day + 1)), `after day ${day}`);
      }
      const all = (await arrivedAfter(under, OLDEST)).events;
      for (const [index, { cursor }] of all.entries()) {
        assert.deepEqual((await arrivedAfter(under, cursor)).events, all.slice(index + 1));
      }
    });

    test('a cursor after which events have expired is refused, and no other', async () => {
      const { traces, cursors } = await sendDays(6);
      await sweepAll(under, { eventsMs: 2 * DAY_MS }, START + 5 * DAY_MS + 1);
      const left = (await arrivedAfter(under, OLDEST)).events.map(({ traceId }) => traceId);
      const kept = left.length / 2;
      assert.ok(kept >= 2 && kept <= 4, `${kept} days are kept`);
      assert.deepEqual(left, twice(traces.slice(-kept)));
      const lastGone = 6 - kept - 1;
      for (const [day, cursor] of cursors.entries()) {
        if (day < lastGone) await assert.rejects(tracesAfter(cursor), refusedBecause(/have expired.*"oldest"/));
        else assert.deepEqual(await tracesAfter(cursor), twice(traces.slice(day + 1)), `after day ${day}`);
      }
      // Of the other tenant as much has expired.
      await assert.rejects(arrivedAfter(under, cursors[0] ?? '', OTHER_TENANT), BadCursorError);
    });

    test('what arrived late and has expired before earlier arrivals is skipped: cursors before and after it are good', async () => {
      const early = await send(under, [person({ user_id: 'u' }, [{}, {}])], { receivedAt: START + 9 * DAY_MS });
      const { last: before } = await under.store.arrivals(TENANT, null, 1);
      // As a user that was received first, rejected, and resubmitted.
      await send(under, [person({ user_id: 'late' })], { receivedAt: START });
      const { last: at } = await under.store.arrivals(TENANT, null, 1);
      const next = await send(under, [person({ user_id: 'u' })], { receivedAt: START + 9 * DAY_MS + 1 });
      await sweepAll(under, { eventsMs: 5 * DAY_MS }, START + 10 * DAY_MS);
      assert.deepEqual(await tracesAfter(OLDEST), [early, early, next]);
      assert.equal((await eventsOf(under)).length, 3);
      assert.deepEqual(await tracesAfter(before), [next]);
      assert.deepEqual(await tracesAfter(at), [next]);
      await sweepAll(under, { eventsMs: 5 * DAY_MS }, START + 20 * DAY_MS);
      assert.deepEqual(await tracesAfter(OLDEST), []);
      await assert.rejects(tracesAfter(before), refusedBecause(/have expired.*"oldest"/));
    });

    test('a cursor that was given before a tenant sent anything is good', async () => {
      const { last } = await under.store.arrivals(TENANT, null, 1);
      assert.deepEqual(await tracesAfter(last), []);
      const { traces } = await sendDays(1);
      assert.deepEqual(await tracesAfter(last), twice(traces));
    });

    test('after all has expired, both "oldest" and what comes next give cursors that are good', async () => {
      await sendDays(2);
      await sweepAll(under, { eventsMs: DAY_MS }, START + 9 * DAY_MS);
      const cursors = [OLDEST, (await under.store.arrivals(TENANT, OLDEST, 5)).last];
      cursors.push((await under.store.arrivals(TENANT, null, 5)).last);
      const traceId = await send(under, [person({ user_id: 'u' })], { receivedAt: START + 9 * DAY_MS });
      for (const cursor of cursors) assert.deepEqual(await tracesAfter(cursor), [traceId]);
    });

    test('what was erased is not missing: a cursor before it is good', async () => {
      const start = (await under.store.arrivals(TENANT, null, 1)).last;
      await send(under, [person({ user_id: 'gone' }, [{}, {}])]);
      const traceId = await send(under, [person({ user_id: 'u' })]);
      const { id } = await profileOf(under, 'user_id', 'gone');
      assert.ok(await under.store.erase(TENANT, id, { traceId, at: START }));
      assert.deepEqual(await tracesAfter(start), [traceId]);
    });

    test('the newest arrivals are given in order, with how many came before them', async () => {
      const { last: start } = await under.store.arrivals(TENANT, null, 1);
      await sendDays(5);
      const all = (await arrivedAfter(under, start)).events;
      const newest = await under.store.newestArrivals(TENANT, start, ANY, 3);
      assert.deepEqual(newest.events, all.slice(-3));
      const { cursor } = all.at(-4) as ArrivedEvent;
      assert.deepEqual(newest.skipped, { events: 7, cursor });
      assert.deepEqual((await arrivedAfter(under, newest.last)).events, []);
      const rest = await under.store.newestArrivals(TENANT, cursor, ANY, 3);
      assert.deepEqual({ events: rest.events, skipped: rest.skipped }, { events: all.slice(-3), skipped: null });
      const none = await under.store.newestArrivals(TENANT, newest.last, ANY, 3);
      assert.deepEqual({ events: none.events, skipped: none.skipped }, { events: [], skipped: null });
      assert.deepEqual((await under.store.newestArrivals('acct_unknown/production', OLDEST, ANY, 3)).events, []);
    });

    test('a look through more than one call covers gives or counts every event, and passes over none', async () => {
      const { last: start } = await under.store.arrivals(TENANT, null, 1);
      const users = (name: string): object[] =>
        Array.from({ length: 997 }, (_, n) => person({ user_id: `${name}-${n}` }));
      for (let request = 0; request < 23; request++) {
        const isOther = request % 11 === 5;
        await send(under, users('u'), { tenantId: isOther ? OTHER_TENANT : TENANT, receivedAt: START + request });
      }
      for (const [tenantId, requests] of [
        [TENANT, 21],
        [OTHER_TENANT, 2],
      ] as const) {
        let events = 0;
        for (let last = start, isEnd = false; !isEnd; ) {
          const page = await under.store.newestArrivals(tenantId, last, ANY, 7);
          events += page.events.length + (page.skipped?.events ?? 0);
          isEnd = page.last === last || (page.events.length === 0 && page.skipped === null);
          last = page.last;
        }
        assert.equal(events, requests * 997, tenantId);
      }
      const listed = await arrivedAfter(under, start, OTHER_TENANT, 500);
      assert.equal(listed.events.length, 2 * 997);
    });

    test('of the newest arrivals a filter gives those of an event name, a key and a person, merged ones included', async () => {
      const { last: start } = await under.store.arrivals(TENANT, null, 1);
      const own = await send(under, [person({ user_id: 'a' }, [{ event_name: 'seen' }, { event_name: 'bought' }])]);
      await send(under, [person({ user_id: 'b' }, [{ event_name: 'bought' }])], { keyId: 'key_other' });
      const merging = await send(under, [person({ anon_id: 'x' }, [{ event_name: 'seen' }])]);
      const { id: merged } = await profileOf(under, 'anon_id', 'x');
      const link = await send(under, [person({ user_id: 'a', anon_id: 'x' }, [{ event_name: 'linked' }])]);
      const given = async (filter: Partial<ArrivalFilter>): Promise<string[]> =>
        (await under.store.newestArrivals(TENANT, start, { ...ANY, ...filter }, 50)).events.map(
          ({ eventName, traceId }) => `${eventName} ${traceId}`,
        );
      assert.deepEqual(await given({ eventName: 'seen' }), [`seen ${own}`, `seen ${merging}`]);
      assert.equal((await given({ keyId: 'key_other' })).length, 1);
      const ofPerson = [`seen ${own}`, `bought ${own}`, `seen ${merging}`, `linked ${link}`];
      const { id } = await profileOf(under, 'user_id', 'a');
      assert.deepEqual(await given({ profileId: id }), ofPerson);
      assert.deepEqual(await given({ profileId: merged }), ofPerson);
      assert.deepEqual(await given({ profileId: '00000000-0000-4000-8000-000000000000' }), []);
      assert.deepEqual(await given({ profileId: id, eventName: 'bought' }), [`bought ${own}`]);
    });

    test('a cursor from the future, of another installation, or none at all is refused with how to continue', async () => {
      await sendDays(2);
      const { last } = await under.store.arrivals(TENANT, null, 1);
      const [list = '', installation = '', ...numbers] = cursorWords(last);
      const ahead = numbers.map((number, index) => (index === 0 ? Number(number) + 2 ** 40 : number));
      const other = installation.replaceAll(/./g, (digit) => (digit === '0' ? '1' : '0'));
      for (const [words, reason] of [
        [[list, installation, ...ahead], /^is ahead of all that is stored.*"oldest"/],
        [[list, other, ...numbers], /^was given by another installation.*"oldest"/],
        [[list, ...numbers], /^is not one that this call gave/],
        [[list, installation], /^is not one that this call gave/],
        [[list, installation, ...numbers, 1, 2], /^is not one that this call gave/],
        [[list, installation, 'x'], /^is not one that this call gave/],
        [[list, installation.toUpperCase().replace(/^./, 'G'), ...numbers], /^is not one that this call gave/],
        [['events', installation, ...numbers], /^is not one that this call gave/],
      ] as const) {
        await assert.rejects(
          under.store.arrivals(TENANT, cursorFrom(words), 5),
          refusedBecause(reason),
          words.join(' '),
        );
      }
      // And continues as if nothing had been asked.
      const traceId = await send(under, [person({ user_id: 'u' })], { receivedAt: START + 3 * DAY_MS });
      assert.deepEqual(await tracesAfter(last), [traceId]);
    });
  });
}
