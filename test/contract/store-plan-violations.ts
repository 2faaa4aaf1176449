/** The contract of the store: what events violate of a tracking plan that warns, on the trace and counted. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { openWarningPlan, type WarningPlan } from '../../src/processor/plan-warnings.ts';
import {
  DAY_MS,
  feed,
  HOUR_MS,
  KEEP_ALL,
  type OpenStore,
  OTHER_TENANT,
  person,
  request,
  type StoreUnderTest,
  START,
  sweepAll,
  TENANT,
} from './store-feeding.ts';

const PLAN = {
  unplanned_events: 'warn',
  events: {
    order: {
      mode: 'warn',
      schema: {
        properties: { total: { type: 'number' }, items: { items: { required: ['id'] } } },
        required: ['total'],
      },
    },
    enforced: { mode: 'enforce', schema: { required: ['x'] } },
  },
  user_properties: { mode: 'warn', schema: { properties: { plan: { enum: ['free', 'pro'] } } } },
};
const VERSION = 3;
const opened = (version: number) => openWarningPlan({ id: `tested ${version}`, version, text: JSON.stringify(PLAN) });
const ENDING = ` (tracking plan, version ${VERSION})`;

export function storePlanViolationsContract(open: OpenStore): void {
  suite('violations of tracking plans', () => {
    let under: StoreUnderTest;
    let plan: WarningPlan;
    beforeEach(async () => {
      [under, plan] = [await open(), await opened(VERSION)];
    });
    afterEach(() => under.close());

    const plans = { of: (tenantId: string) => (tenantId === TENANT ? plan : undefined) };
    const sent = (users: readonly object[], receivedAt = START, tenantId = TENANT) =>
      request(users, { receivedAt, tenantId });

    test('they are on the trace of each user, with the version', async () => {
      const entry = sent([
        person({ user_id: 'u' }, [{ event_name: 'order', total: 1 }]),
        person({ user_id: 'v' }, [{ event_name: 'enforced' }, { event_name: 'order', items: [{ id: 1 }, {}] }], {
          plan: 'x',
        }),
      ]);
      await feed(under, [entry], { plans });
      const trace = await under.store.trace(TENANT, entry.traceId);
      assert.deepEqual(
        trace?.users.map(({ warnings }) => warnings),
        [
          [],
          [
            `user_properties.plan: must be one of "free", "pro"${ENDING}`,
            `events[1].total: is required${ENDING}`,
            `events[1].items[1].id: is required${ENDING}`,
          ],
        ],
      );
    });

    test('they are counted by version, event and path, over transactions', async () => {
      const wrong = { event_name: 'order', total: 'x', items: [{}, {}] };
      await feed(
        under,
        [sent([person({ user_id: 'u' }, [wrong, wrong])]), sent([person({ user_id: 'v' }, [wrong])], START + 1)],
        { plans },
      );
      const last = sent([person({ user_id: 'u' }, [wrong])], START + HOUR_MS);
      await feed(under, [last], { plans });
      const more = sent([person({ user_id: 'u' }, [{ event_name: 'other' }])], START + HOUR_MS);
      await feed(under, [more], { plans });
      const row = { version: VERSION, firstAt: START, lastAt: START + HOUR_MS, traceId: last.traceId };
      const expected = [
        { ...row, eventName: 'order', path: 'items[].id', message: 'is required', count: 8 },
        { ...row, eventName: 'order', path: 'total', message: 'must be a number', count: 4 },
        {
          ...row,
          eventName: 'other',
          path: 'event_name',
          message: 'is not in the tracking plan',
          count: 1,
          firstAt: START + HOUR_MS,
          traceId: more.traceId,
        },
      ];
      assert.deepEqual(await under.store.planViolations(TENANT, null), expected);
      assert.deepEqual(await under.store.planViolations(TENANT, VERSION), expected);
      assert.deepEqual(await under.store.planViolations(TENANT, VERSION + 1), []);
      assert.deepEqual(await under.store.planViolations(OTHER_TENANT, null), []);
    });

    test('of a tenant without a plan nothing is checked, and of a repeated event nothing is counted', async () => {
      const wrong = { event_name: 'order', $event_id: 'e_1' };
      await feed(under, [sent([person({ user_id: 'u' }, [wrong])], START, OTHER_TENANT)], { plans });
      await feed(under, [sent([person({ user_id: 'u' }, [wrong])])], { plans });
      await feed(under, [sent([person({ user_id: 'u' }, [wrong, { ...wrong, $event_id: 'e_2' }])])], { plans });
      assert.deepEqual(await under.store.planViolations(OTHER_TENANT, null), []);
      assert.deepEqual(
        (await under.store.planViolations(TENANT, null)).map(({ count }) => count),
        [2],
      );
    });

    test('names that clients choose do not make more rows than are distinguished', async () => {
      const users = Array.from({ length: 1_100 }, (_, n) =>
        person({ user_id: `u${n}` }, [{ event_name: `event ${n}` }]),
      );
      await feed(under, [sent(users.slice(0, 600))], { plans });
      // A processor that has just started.
      plan = await opened(VERSION);
      await feed(under, [sent(users.slice(600))], { plans });
      await feed(under, [sent(users.slice(0, 1))], { plans });
      const [first, second, third] = await under.store.planViolations(TENANT, null);
      assert.deepEqual([first?.path, first?.message, first?.count], ['…', 'other violations', 100]);
      assert.deepEqual([second?.eventName, second?.count, third?.count], ['event 0', 2, 1]);
    });

    test('old ones are removed in pieces', async () => {
      const users = Array.from({ length: 1_000 }, (_, n) => person({ user_id: 'u' }, [{ event_name: `event ${n}` }]));
      for (const version of [1, 2, 3]) {
        plan = await opened(version);
        await feed(under, [sent(users)], { plans });
      }
      const listed = async () => {
        const found = [1, 2, 3].map((version) => under.store.planViolations(TENANT, version));
        return (await Promise.all(found)).flat().length;
      };
      const all = await listed();
      const left = new Set<number>();
      while (!left.has(0)) {
        assert.equal(await under.writer.sweep(KEEP_ALL, START + 31 * DAY_MS), true);
        left.add(await listed());
      }
      assert.ok(
        [...left].some((count) => count > 0 && count < all),
        'not all in one transaction',
      );
    });

    test('what has not occurred for thirty days is removed', async () => {
      await feed(under, [sent([person({ user_id: 'u' }, [{ event_name: 'order' }])])], { plans });
      await feed(under, [sent([person({ user_id: 'u' }, [{ event_name: 'other' }])], START + DAY_MS)], { plans });
      await sweepAll(under, {}, START + 30 * DAY_MS + 1);
      assert.deepEqual(
        (await under.store.planViolations(TENANT, null)).map(({ eventName }) => eventName),
        ['other'],
      );
    });
  });
}
