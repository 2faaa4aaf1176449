/**
 * What every `KeyStore` does, as a suite that any backend runs: call `keyStoreContract` with a way to open one. Each
 * test gets an empty store of its own. `reopen` gives a second, independent connection to the same data, as another
 * process would have it.
 */

import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { createKey, newAccount } from '../../src/keys/manage.ts';
import { hashKey, makeKey } from '../../src/keys/format.ts';
import { DAY_MS, type Environment, type KeyKind } from '../../src/model.ts';
import type { ApiKey, KeyStore, NewKey } from '../../src/keys.ts';
import { planTests } from './key-plans.ts';

export interface OpenedKeyStore {
  readonly store: KeyStore;
  /** The caller closes what it gets. */
  readonly reopen: () => Promise<KeyStore>;
  /** Closes `store` and removes its data. */
  readonly dispose: () => Promise<void>;
}

const NOON = Date.UTC(2026, 10, 15, 12);

export function keyStoreContract(name: string, open: () => Promise<OpenedKeyStore>): void {
  const withStore = (work: (opened: OpenedKeyStore, accountId: string, context: TestContext) => Promise<void>) => {
    return async (context: TestContext): Promise<void> => {
      const opened = await open();
      context.after(() => opened.dispose());
      const account = await opened.store.ensureAccount(newAccount('acme', NOON));
      await work(opened, account.id, context);
    };
  };

  describe(`the key store contract: ${name}`, () => {
    accountsTests(withStore);
    keysTests(withStore);
    editTests(withStore);
    usageTests(withStore);
    planTests(withStore);
  });
}

type WithStore = (
  work: (opened: OpenedKeyStore, accountId: string, context: TestContext) => Promise<void>,
) => (context: TestContext) => Promise<void>;

function accountsTests(withStore: WithStore): void {
  test(
    'an account is there once it is made, with the id and time that it was given',
    withStore(async ({ store }) => {
      const second = newAccount('second', NOON + 5);
      assert.deepEqual(await store.ensureAccount(second), second);
      const accounts = await store.accounts();
      assert.deepEqual(accounts.map((account) => account.name).toSorted(), ['acme', 'second']);
      assert.deepEqual(
        accounts.find((account) => account.id === second.id),
        second,
      );
    }),
  );

  test(
    'an account of the same name is returned instead of being made twice',
    withStore(async ({ store, reopen }, accountId) => {
      const other = await reopen();
      const again = await Promise.all([
        store.ensureAccount(newAccount('acme', NOON + 1)),
        other.ensureAccount(newAccount('acme', NOON + 2)),
      ]);
      await other.close();
      assert.deepEqual(again, [
        { id: accountId, name: 'acme', createdAt: NOON },
        { id: accountId, name: 'acme', createdAt: NOON },
      ]);
      assert.equal((await store.accounts()).length, 1);
    }),
  );
}

function keysTests(withStore: WithStore): void {
  test(
    'a key is found by its hash, every field as it was stored',
    withStore(async ({ store }, accountId) => {
      const { key, row } = await createKey(store, {
        ...options('secret', 'production'),
        accountId,
        expiresAt: NOON + 1_000,
        now: NOON,
      });
      assert.deepEqual(await store.findByHash(hashKey(key)), asStored(row));
    }),
  );

  test(
    'origins and scopes of a publishable key come back in their order',
    withStore(async ({ store }, accountId) => {
      const origins = ['https://shop.example', 'https://blog.example:8443'];
      const { key, row } = await createKey(store, {
        ...options('publishable', 'development'),
        accountId,
        origins,
        now: NOON,
      });
      const found = await store.findByHash(hashKey(key));
      assert.deepEqual(found?.origins, origins);
      assert.deepEqual(found?.scopes, row.scopes);
    }),
  );

  test(
    'an unknown hash finds nothing',
    withStore(async ({ store }, accountId) => {
      await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      assert.equal(await store.findByHash(hashKey(makeKey('secret', 'production'))), undefined);
    }),
  );

  test(
    'a second key with the same hash is refused, and the first one stays as it is',
    withStore(async ({ store }, accountId) => {
      const { key, row } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      await assert.rejects(store.create({ ...row, id: 'key_another00000', name: 'intruder' }));
      assert.deepEqual(await store.findByHash(hashKey(key)), asStored(row));
    }),
  );

  test(
    'a key of an account that does not exist is refused',
    withStore(async ({ store }) => {
      const creating = createKey(store, { ...options('secret', 'production'), accountId: 'acct_nobody', now: NOON });
      await assert.rejects(creating);
      assert.deepEqual(await store.list(), []);
    }),
  );

  test(
    'keys are listed newest first, those of one moment in reverse order of their making',
    withStore(async ({ store }, accountId) => {
      const ids: string[] = [];
      for (const now of [NOON, NOON + 2, NOON + 1, NOON + 1]) {
        const { row } = await createKey(store, { ...options('secret', 'development'), accountId, now });
        ids.push(row.id);
      }
      const [first, second, third, fourth] = ids;
      const listed = (await store.list()).map((key) => key.id);
      assert.deepEqual(listed, [second, fourth, third, first]);
    }),
  );

  test(
    'keys of one account are listed without those of another',
    withStore(async ({ store }, accountId) => {
      const other = await store.ensureAccount(newAccount('another', NOON));
      const { row } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      await createKey(store, { ...options('secret', 'production'), accountId: other.id, now: NOON });
      assert.deepEqual(await store.list(accountId), [asStored(row)]);
      assert.equal((await store.list()).length, 2);
      assert.deepEqual(await store.list('acct_nobody'), []);
    }),
  );

  test(
    'a revoked key is still found, with the time of its first revocation',
    withStore(async ({ store }, accountId) => {
      const { key, row } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      const revoked = { ...asStored(row), revokedAt: NOON + 10 };
      assert.deepEqual(await store.revoke(row.id, NOON + 10), revoked);
      assert.deepEqual(await store.revoke(row.id, NOON + 20), revoked);
      assert.deepEqual(await store.findByHash(hashKey(key)), revoked);
    }),
  );

  test(
    'revoking an unknown id changes nothing and says so',
    withStore(async ({ store }, accountId) => {
      const { row } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      assert.equal(await store.revoke('key_nobody000000', NOON), undefined);
      assert.deepEqual(await store.list(), [asStored(row)]);
    }),
  );

  test(
    'a key can be made to expire earlier, never later',
    withStore(async ({ store }, accountId) => {
      const { key, row } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      const { row: bystander } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      for (const [asked, expected] of [
        [NOON + 20, NOON + 20],
        [NOON + 30, NOON + 20],
        [NOON + 10, NOON + 10],
      ] as const) {
        const expiring = { ...asStored(row), expiresAt: expected };
        assert.deepEqual(await store.expire(row.id, asked), expiring);
        assert.deepEqual(await store.findByHash(hashKey(key)), expiring);
      }
      assert.equal(await store.expire('key_nobody000000', NOON), undefined);
      assert.ok((await store.list()).some(({ id, expiresAt }) => id === bystander.id && expiresAt === null));
    }),
  );

  test(
    'what one connection wrote is seen by another at its next read',
    withStore(async ({ store, reopen }, accountId) => {
      const other = await reopen();
      assert.deepEqual(await other.list(), []);
      const { key, row } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      assert.deepEqual(await other.findByHash(hashKey(key)), asStored(row));
      await other.revoke(row.id, NOON + 1);
      assert.equal((await store.findByHash(hashKey(key)))?.revokedAt, NOON + 1);
      await other.close();
    }),
  );

  test(
    'everything is still there after closing and opening again',
    withStore(async ({ store, reopen }, accountId) => {
      const { key, row } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      await store.close();
      const again = await reopen();
      assert.deepEqual(await again.findByHash(hashKey(key)), asStored(row));
      await again.close();
    }),
  );

  test(
    'a closed store rejects instead of saying that there is no such key',
    withStore(async ({ store }, accountId) => {
      const { key } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      await store.close();
      await assert.rejects(store.findByHash(hashKey(key)));
      await store.close();
    }),
  );
}

function editTests(withStore: WithStore): void {
  test(
    'name, origins and rate limit of a key can be changed, one by one, and nothing else changes',
    withStore(async ({ store, reopen }, accountId) => {
      const { key, row } = await createKey(store, { ...options('publishable', 'production'), accountId, now: NOON });
      const { row: bystander } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      const other = await reopen();
      const expected = asStored(row);
      const rateLimit = { usersPerSecond: 100, burstUsers: 1_000_000 };
      for (const changes of [
        { name: 'renamed' },
        { origins: ['https://shop.example'] },
        { rateLimit },
        {},
        { origins: [], rateLimit: null },
        { name: 'all', origins: ['https://a.example', 'https://b.example'], rateLimit },
      ]) {
        Object.assign(expected, changes);
        assert.deepEqual(await store.edit(row.id, changes), expected);
        assert.deepEqual(await other.findByHash(hashKey(key)), expected);
      }
      await other.close();
      assert.equal(await store.edit('key_nobody000000', { name: 'x' }), undefined);
      assert.deepEqual(await store.list(), [asStored(bystander), expected]);
    }),
  );

  test(
    'a key is stored with its rate limit',
    withStore(async ({ store }, accountId) => {
      const rateLimit = { usersPerSecond: 1, burstUsers: 2 };
      const limited = { ...options('secret', 'production'), rateLimit, accountId, now: NOON };
      const { key } = await createKey(store, limited);
      assert.deepEqual((await store.findByHash(hashKey(key)))?.rateLimit, rateLimit);
    }),
  );
}

function usageTests(withStore: WithStore): void {
  test(
    'what was received with a key adds up by day, for a week, and is of its account alone',
    withStore(async ({ store, reopen }, accountId) => {
      const other = await store.ensureAccount(newAccount('another', NOON));
      const { row } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      const { row: foreign } = await createKey(store, {
        ...options('secret', 'production'),
        accountId: other.id,
        now: NOON,
      });
      const use = (keyId: string, usedAt: number, users: number) => ({
        keyId,
        usedAt,
        leakOrigin: null,
        volume: { users, events: 2 * users, usersRejected: 3, requestsLimited: 4 },
      });
      const second = await reopen();
      await Promise.all([
        store.recordUsage([use(row.id, NOON, 1), use(foreign.id, NOON, 100)]),
        second.recordUsage([use(foreign.id, NOON, 100), use(row.id, NOON, 10)]),
      ]);
      await second.close();
      await store.recordUsage([use(row.id, NOON + DAY_MS, 1_000), use('key_nobody000000', NOON, 1)]);
      const volume = { users: 1_011, events: 2_022, usersRejected: 9, requestsLimited: 12 };
      assert.deepEqual(await store.volumes(accountId, NOON), new Map([[row.id, volume]]));
      const newest = { users: 1_000, events: 2_000, usersRejected: 3, requestsLimited: 4 };
      assert.deepEqual(await store.volumes(accountId, NOON + DAY_MS), new Map([[row.id, newest]]));
      assert.deepEqual(await store.volumes(accountId, NOON + 2 * DAY_MS), new Map());
      await store.recordUsage([use(row.id, NOON + 7 * DAY_MS, 5)]);
      assert.equal((await store.volumes(accountId, 0)).get(row.id)?.users, 1_005, 'the first day is gone');
    }),
  );

  test(
    'the last origin is that of the newest use that has one',
    withStore(async ({ store }, accountId) => {
      const { row } = await createKey(store, { ...options('publishable', 'production'), accountId, now: NOON });
      const use = (usedAt: number, origin?: string) => ({
        keyId: row.id,
        usedAt,
        leakOrigin: null,
        ...(origin !== undefined && { origin }),
      });
      await store.recordUsage([use(NOON + 1, 'https://a.example'), use(NOON + 3, 'https://b.example')]);
      await store.recordUsage([use(NOON + 4), use(NOON + 2, 'https://old.example')]);
      assert.deepEqual(await store.list(), [
        { ...asStored(row), lastUsedAt: NOON + 4, lastOrigin: 'https://b.example' },
      ]);
    }),
  );

  test(
    'the time of last use moves forwards only, also within one batch',
    withStore(async ({ store }, accountId) => {
      const { row } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      const sighting = (usedAt: number) => ({ keyId: row.id, usedAt, leakOrigin: null });
      await store.recordUsage([sighting(NOON + 30), sighting(NOON + 20)]);
      await store.recordUsage([sighting(NOON + 10)]);
      assert.deepEqual(await store.list(), [{ ...asStored(row), lastUsedAt: NOON + 30 }]);
    }),
  );

  test(
    'the first suspected leak is kept, and counts as a use',
    withStore(async ({ store }, accountId) => {
      const { row } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      await store.recordUsage([
        { keyId: row.id, usedAt: NOON + 1, leakOrigin: null },
        { keyId: row.id, usedAt: NOON + 2, leakOrigin: 'https://first.example' },
        { keyId: row.id, usedAt: NOON + 3, leakOrigin: 'https://second.example' },
      ]);
      assert.deepEqual(await store.list(), [
        {
          ...asStored(row),
          lastUsedAt: NOON + 3,
          leakSuspectedAt: NOON + 2,
          leakOrigin: 'https://first.example',
        },
      ]);
    }),
  );

  test(
    'usage of unknown ids is ignored, that of others beside them is not',
    withStore(async ({ store }, accountId) => {
      const { row } = await createKey(store, { ...options('secret', 'production'), accountId, now: NOON });
      await store.recordUsage([]);
      await store.recordUsage([
        { keyId: 'key_nobody000000', usedAt: NOON + 1, leakOrigin: 'https://x.example' },
        { keyId: row.id, usedAt: NOON + 1, leakOrigin: null },
      ]);
      assert.deepEqual(await store.list(), [{ ...asStored(row), lastUsedAt: NOON + 1 }]);
    }),
  );
}

function options(kind: KeyKind, environment: Environment) {
  return { name: `${kind} for ${environment}`, kind, environment, origins: [], expiresAt: null };
}

function asStored(row: NewKey): ApiKey {
  const untouched = {
    revokedAt: null,
    lastUsedAt: null,
    lastOrigin: null,
    leakSuspectedAt: null,
    leakOrigin: null,
    enforcedPlan: null,
  };
  const { hash, ...rest } = row;
  assert.equal(hash.length, 32);
  return { ...rest, accountName: 'acme', ...untouched };
}
