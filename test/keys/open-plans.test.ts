/** The tracking plans that a thread has opened: each version once, those used last, and what cannot be used reported once. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { OpenPlans } from '../../src/keys/open-plans.ts';
import { tenantOf } from '../../src/model.ts';
import type { PlanTenant } from '../../src/plans.ts';

const ENFORCED = '{"events":{"order_placed":{"mode":"enforce","schema":{"required":["total"]}}}}';
const ORDER = { identifiers: { user_id: 'u' }, events: [{ event_name: 'order_placed' }] };

const tenant = (n: number) => tenantOf(`acct_${n}`, 'production');

/** A store in which every tenant has this plan, as version 1; `reads` has the account of each call. */
function storeWith(stored: { readonly text?: string; readonly enforces?: boolean; readonly warns?: boolean }) {
  const reads: string[] = [];
  const find = async ({ accountId }: PlanTenant, version = 1) => {
    reads.push(accountId);
    return { version, text: ENFORCED, enforces: true, warns: false, createdAt: 0, createdBy: 'key_1', ...stored };
  };
  return { find, reads };
}

const noneIsUnusable = (): never => assert.fail('no plan is unusable');

suite('Open tracking plans', () => {
  test('are those of the tenants that were asked for last', async () => {
    const store = storeWith({});
    const plans = new OpenPlans(store, noneIsUnusable);
    for (let n = 0; n < 200; n++) await plans.open(tenant(n), 1);
    assert.equal(store.reads.length, 200);
    assert.ok(plans.peek(tenant(0), 1));
    await plans.open(tenant(200), 1);
    assert.ok(plans.peek(tenant(0), 1), 'it was used after the others were opened');
    assert.equal(plans.peek(tenant(1), 1), undefined);
  });

  test('a version that several requests wait for is read once, and the newest one is that version', async () => {
    const store = storeWith({});
    const plans = new OpenPlans(store, noneIsUnusable);
    const [first, second] = await Promise.all([plans.open(tenant(1), 1), plans.open(tenant(1), 1)]);
    assert.equal(store.reads.length, 1);
    assert.equal(first, second);
    assert.equal(await plans.newest(tenant(1)), first);
    assert.equal(first.plan?.enforced(ORDER), 'events[0].total: is required (tracking plan, version 1)');
  });

  test('one that checks nothing is not opened', async () => {
    const plans = new OpenPlans(storeWith({ text: '{}', enforces: false }), noneIsUnusable);
    assert.equal(await plans.newest(tenant(1)), undefined);
  });

  test('one that this version cannot use is reported when it is opened, and not again', async () => {
    const reasons: string[] = [];
    const plans = new OpenPlans(storeWith({ text: '{"modes":{}}' }), (reason) => reasons.push(reason));
    const opened = await plans.newest(tenant(1));
    assert.deepEqual(opened, { version: 1, enforces: true, plan: null });
    assert.equal(await plans.newest(tenant(1)), opened);
    assert.equal(plans.peek(tenant(1), 1), opened);
    assert.equal(reasons.length, 1);
    assert.match(reasons[0] ?? '', /^acct_1.*, version 1: modes is unknown/);
  });

  test('what the store does not have any more, or cannot read, is tried again', async () => {
    let isAway = true;
    const { find } = storeWith({});
    const plans = new OpenPlans({ find: (...given) => (isAway ? Promise.reject(new Error('away')) : find(...given)) });
    await assert.rejects(plans.open(tenant(1), 1), /away/);
    await assert.rejects(plans.newest(tenant(1)), /away/);
    isAway = false;
    assert.equal((await plans.open(tenant(1), 1)).version, 1);
    const emptied = new OpenPlans({ find: () => Promise.resolve(undefined) });
    await assert.rejects(emptied.open(tenant(1), 1), /version 1 of the tracking plan is no longer kept/);
    assert.equal(await emptied.newest(tenant(1)), undefined);
  });
});
