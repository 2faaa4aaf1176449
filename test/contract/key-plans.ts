/** Tracking plans in a key store: the part of its contract (`keys.ts`) that is about them. */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { createKey, newAccount } from '../../src/keys/manage.ts';
import { hashKey } from '../../src/keys/format.ts';
import type { KeyStore } from '../../src/keys.ts';
import { type NewPlan, PLAN_VERSIONS_MAX } from '../../src/plans.ts';

type WithStore = (
  work: (opened: Opened, accountId: string) => Promise<void>,
) => (context: TestContext) => Promise<void>;

interface Opened {
  readonly store: KeyStore;
  readonly reopen: () => Promise<KeyStore>;
}

const NOON = Date.UTC(2026, 10, 15, 12);

const plan = (text: string, rest: Partial<NewPlan> = {}): NewPlan => ({
  text,
  createdAt: NOON,
  createdBy: 'key_1',
  enforces: true,
  warns: false,
  basedOn: null,
  ...rest,
});

export function planTests(withStore: WithStore): void {
  test(
    'plans: the newest version is the one in use, and older ones can be read',
    withStore(async ({ store: { plans } }, accountId) => {
      const tenant = { accountId, environment: 'production' } as const;
      assert.equal(await plans.find(tenant), undefined);
      assert.deepEqual(await plans.versions(tenant), []);
      const first = { version: 1, createdAt: NOON, createdBy: 'key_1', enforces: true, warns: false };
      assert.deepEqual(await plans.push(tenant, plan('{"a":1}')), { newest: first, isNew: true, isConflict: false });
      await plans.push(tenant, plan('{"a":2}', { createdAt: NOON + 1, enforces: false, warns: true }));
      const second = { ...first, version: 2, createdAt: NOON + 1, enforces: false, warns: true };
      assert.deepEqual(await plans.find(tenant), { ...second, text: '{"a":2}' });
      assert.deepEqual(await plans.find(tenant, 1), { ...first, text: '{"a":1}' });
      assert.equal(await plans.find(tenant, 3), undefined);
      assert.deepEqual(await plans.versions(tenant), [second, first]);
    }),
  );

  test(
    'plans: the same plan again makes no version',
    withStore(async ({ store: { plans } }, accountId) => {
      const tenant = { accountId, environment: 'production' } as const;
      await plans.push(tenant, plan('{}'));
      const again = await plans.push(tenant, plan('{}', { createdAt: NOON + 5 }));
      assert.deepEqual([again.isNew, again.newest?.version, again.newest?.createdAt], [false, 1, NOON]);
    }),
  );

  test(
    'plans: a push that is based on another version than the newest is refused',
    withStore(async ({ store: { plans } }, accountId) => {
      const tenant = { accountId, environment: 'production' } as const;
      assert.equal((await plans.push(tenant, plan('{}', { basedOn: 1 }))).isConflict, true);
      assert.equal((await plans.push(tenant, plan('{}', { basedOn: 0 }))).isNew, true);
      const refused = await plans.push(tenant, plan('{"a":1}', { basedOn: 0 }));
      assert.deepEqual([refused.isConflict, refused.newest?.version], [true, 1]);
      assert.equal((await plans.push(tenant, plan('{"a":1}', { basedOn: 1 }))).newest?.version, 2);
    }),
  );

  test(
    'plans: pushes at the same time from two places get a version each',
    withStore(async ({ store, reopen }, accountId) => {
      const tenant = { accountId, environment: 'production' } as const;
      const other = await reopen();
      const pushes = Array.from({ length: 10 }, (_, index) =>
        (index % 2 === 0 ? store : other).plans.push(tenant, plan(`{"a":${index}}`)),
      );
      const versions = (await Promise.all(pushes)).map(({ newest }) => newest?.version ?? 0);
      await other.close();
      assert.deepEqual(
        versions.toSorted((a, b) => a - b),
        Array.from({ length: 10 }, (_, index) => index + 1),
      );
    }),
  );

  test(
    'plans: so many versions are kept, and numbers go on',
    withStore(async ({ store: { plans } }, accountId) => {
      const tenant = { accountId, environment: 'production' } as const;
      for (let n = 0; n < PLAN_VERSIONS_MAX + 2; n++) await plans.push(tenant, plan(`{"a":${n}}`));
      const versions = await plans.versions(tenant);
      assert.equal(versions.length, PLAN_VERSIONS_MAX);
      assert.equal(versions[0]?.version, PLAN_VERSIONS_MAX + 2);
      assert.equal(versions.at(-1)?.version, 3);
    }),
  );

  test(
    'plans: a tenant sees its own alone',
    withStore(async ({ store }, accountId) => {
      const { plans } = store;
      const { id } = await store.ensureAccount(newAccount('second', NOON));
      await plans.push({ accountId, environment: 'production' }, plan('{}', { warns: true }));
      assert.equal(await plans.find({ accountId, environment: 'development' }), undefined);
      assert.equal(await plans.find({ accountId: id, environment: 'production' }), undefined);
      assert.deepEqual(await plans.versions({ accountId: id, environment: 'production' }), []);
      assert.deepEqual(await plans.warning(), [{ accountId, environment: 'production', version: 1 }]);
      await plans.push({ accountId, environment: 'production' }, plan('{"a":1}'));
      assert.deepEqual(await plans.warning(), []);
    }),
  );

  test(
    'plans: a key says which version is enforced, for its environment alone',
    withStore(async ({ store }, accountId) => {
      const made = { name: 'k', kind: 'secret', origins: [], expiresAt: null, accountId, now: NOON } as const;
      const { key } = await createKey(store, { ...made, environment: 'production' });
      const { key: other } = await createKey(store, { ...made, environment: 'development' });
      const tenant = { accountId, environment: 'production' } as const;
      const enforced = async (of: string) => (await store.findByHash(hashKey(of)))?.enforcedPlan;
      assert.equal(await enforced(key), null);
      await store.plans.push(tenant, plan('{}', { enforces: false }));
      assert.equal(await enforced(key), null);
      await store.plans.push(tenant, plan('{"a":1}'));
      assert.equal(await enforced(key), 2);
      assert.equal(await enforced(other), null);
      await store.plans.push(tenant, plan('{}', { enforces: false }));
      assert.equal(await enforced(key), null);
    }),
  );
}
