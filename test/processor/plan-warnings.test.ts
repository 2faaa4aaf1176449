/** The plans that the processor warns by: taken over as they are pushed, and kept while they cannot be read. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newAccount } from '../../src/keys/create.ts';
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
  const plans = new CurrentWarningPlans(breakable, outage);
  const inUse = async (): Promise<number | undefined> => {
    await plans.look();
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

  // One that cannot be used any more is reported, warns of nothing, and keeps no other tenant from its own.
  await push('{"events":7}', true);
  const other = { accountId, environment: 'development' } as const;
  const text = '{"events":{"a":{"mode":"warn"}}}';
  await store.plans.push(other, { text, warns: true, enforces: false, createdAt: NOW, createdBy: 'k', basedOn: null });
  assert.equal(await inUse(), 4);
  assert.equal(plans.of(tenantOf(accountId, 'development'))?.version, 1);
  assert.equal(states.at(-1), 'failed');
});
