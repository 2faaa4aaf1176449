/** The plans that the processor warns by: taken over as they are pushed, and kept while they cannot be read. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newAccount } from '../../src/keys/manage.ts';
import { tenantOf } from '../../src/model.ts';
import { CurrentWarningPlans } from '../../src/processor/plan-warnings.ts';
import type { PlanStore } from '../../src/plans.ts';
import { temporaryKeyStore } from '../keys/temporary-store.ts';

const NOW = Date.UTC(2026, 10, 15);

test('a new version is used at the next look, and what is known stays while plans cannot be read', async (t) => {
  const { store } = await temporaryKeyStore(t);
  const { id: accountId } = await store.ensureAccount(newAccount('acme', NOW));
  const tenant = { accountId, environment: 'production' } as const;
  const push = (text: string, warns: boolean) =>
    store.plans.push(tenant, { text, warns, enforces: false, createdAt: NOW, createdBy: 'key_1', basedOn: null });
  const states: string[] = [];
  let isBroken = false;
  const breakable = new Proxy<PlanStore>(store.plans, {
    get: (plans, name) => {
      if (isBroken) return () => Promise.reject(new Error('away'));
      return (Reflect.get(plans, name) as (...args: unknown[]) => unknown).bind(plans);
    },
  });
  const outage = { failed: () => states.push('failed'), worked: () => states.push('worked') };
  const plans = new CurrentWarningPlans(breakable, outage, { error: () => assert.fail('no plan is unusable') });
  const inUse = async (): Promise<number | undefined> => {
    await plans.refresh();
    return plans.of(tenantOf(accountId, 'production'))?.version;
  };

  assert.equal(await inUse(), undefined);
  await push('{"events":{"a":{"mode":"warn"}}}', true);
  assert.equal(await inUse(), 1);
  await push('{"events":{"b":{"mode":"warn"}}}', true);
  isBroken = true;
  assert.equal(await inUse(), 1);
  isBroken = false;
  assert.equal(await inUse(), 2);
  assert.equal(plans.of(tenantOf(accountId, 'development')), undefined);
  await push('{"events":{"b":{"mode":"off"}}}', false);
  assert.equal(await inUse(), undefined);
  assert.deepEqual(states, ['worked', 'worked', 'failed', 'worked', 'worked']);
});

test('a stored plan that cannot be read warns of nothing, is logged once, and does not affect other tenants', async (t) => {
  const { store } = await temporaryKeyStore(t);
  const { id: accountId } = await store.ensureAccount(newAccount('acme', NOW));
  const push = (environment: 'production' | 'development', text: string) =>
    store.plans.push(
      { accountId, environment },
      { text, warns: true, enforces: false, createdAt: NOW, createdBy: 'key_1', basedOn: null },
    );
  const lines: object[] = [];
  const outage = { failed: assert.fail, worked: () => undefined };
  const plans = new CurrentWarningPlans(store.plans, outage, { error: (line: object) => lines.push(line) });
  const inUse = async (): Promise<(number | undefined)[]> => {
    await plans.refresh();
    return (['production', 'development'] as const).map((one) => plans.of(tenantOf(accountId, one))?.version);
  };
  await push('production', '{"events":{"a":{"mode":"later"}}}');
  await push('development', '{"events":{"a":{"mode":"warn"}}}');
  assert.deepEqual(await inUse(), [undefined, 1]);
  assert.deepEqual(await inUse(), [undefined, 1]);
  const reason = 'events.a.mode must be one of off, warn, enforce';
  assert.deepEqual(lines, [{ tenant_id: tenantOf(accountId, 'production'), version: 1, reason }]);
  await push('production', '{"events":{"a":{"mode":"warn"}}}');
  assert.deepEqual(await inUse(), [2, 1]);
});
