/**
 * What the processor collects for the catalogue: all of it at low rates, a bounded sample at high ones, and nothing of
 * transactions that were rolled back. What the stores make of it is in `test/contract/store-catalogue.ts`.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { openSqliteStoreWriter } from '../../src/backends/embedded/store/writer.ts';
import { storeFileOf } from '../../src/data-folder/files.ts';
import { CatalogueCollector } from '../../src/processor/catalogue.ts';
import {
  StoreConflictError,
  type StoreWriter,
  type TenantBatch,
  type WriteTransaction,
} from '../../src/store-writer.ts';
import { override } from '../override.ts';
import { folderIn } from '../faults/scope.ts';
import { entryOf, traceIdOf } from './history.ts';
import { appendAll, processAll, withStore } from './processing.ts';

const TENANT = 'acct_c/production';
const AT = Date.UTC(2026, 3, 1, 9, 30);

/** A batch of a transaction that stores these events. */
function batchOf(events: readonly { readonly name: string; readonly properties?: object }[], tenantId = TENANT) {
  const toStore = events.map(({ name, properties = {} }, eventIndex) => ({
    ...{ eventIndex, name, timestamp: AT, revenue: null, currency: '', value: null },
    properties: JSON.stringify(properties),
  }));
  const user = {
    origin: { receivedAt: AT, traceId: '', userIndex: 0 },
    node: 1,
    events: toStore,
    propertyUpdate: null,
  };
  const record = { header: { receivedAt: AT, keyId: 'key_1' }, users: [user] };
  return { tenantId, records: [record] } as unknown as TenantBatch;
}

function collected(collector: CatalogueCollector) {
  const { observations } = collector.observations();
  return {
    names: observations.length,
    events: observations.reduce((sum, { count }) => sum + count, 0),
    examined: observations.reduce((sum, { examined }) => sum + examined, 0),
    withProperties: observations.filter(({ properties }) => properties.length > 0).length,
    of: (name: string) => observations.find((one) => one.name === name),
  };
}

suite('What is collected for the catalogue', () => {
  test('is exact while there is little', () => {
    const collector = new CatalogueCollector(() => AT);
    for (let n = 0; n < 20; n++) {
      collector.add(batchOf(Array.from({ length: 50 }, () => ({ name: 'seen', properties: { page: n } }))));
      collector.commit();
    }
    const seen = collected(collector).of('seen');
    assert.equal(seen?.count, 1_000);
    assert.equal(seen.examined, 1_000);
    assert.equal(seen.properties[0]?.count, 1_000);
    assert.deepEqual(seen.properties[0].examples, ['0', '1', '2']);
  });

  test('is a sample when there is much, in which rare events are', () => {
    const collector = new CatalogueCollector(() => AT);
    const text = 'x'.repeat(100);
    for (let n = 0; n < 100; n++) {
      const events = Array.from({ length: 500 }, () => ({ name: 'often', properties: { text } }));
      collector.add(batchOf([...events, { name: 'rarely', properties: { text } }]));
      collector.commit();
    }
    const { of } = collected(collector);
    assert.equal(of('often')?.count, 50_000);
    assert.ok((of('often')?.examined ?? 0) < 15_000);
    assert.equal(of('rarely')?.examined, 100);
    collector.flushed();
    collector.add(batchOf([{ name: 'often', properties: { text } }]));
    collector.commit();
    assert.equal(collected(collector).of('often')?.examined, 1);
  });

  test('is bounded in names, and in names with properties', () => {
    const collector = new CatalogueCollector(() => AT);
    const events = Array.from({ length: 25_000 }, (_, n) => ({ name: `name ${n}`, properties: { n } }));
    collector.add(batchOf([{ name: 'known' }]));
    collector.commit();
    collector.add(batchOf([...events, { name: 'known' }]));
    collector.commit();
    const { names, events: counted, withProperties, of } = collected(collector);
    assert.ok(names <= 20_001);
    assert.ok(withProperties <= 200);
    assert.equal(counted, 25_002);
    assert.equal(of('known')?.count, 2);
    assert.ok((of('')?.count ?? 0) >= 5_000);
    assert.equal(of('')?.examined, 0);
  });

  test('is nothing of a transaction that was rolled back', () => {
    const collector = new CatalogueCollector(() => AT);
    collector.add(batchOf([{ name: 'kept' }]));
    collector.commit();
    collector.add(batchOf([{ name: 'kept' }, { name: 'lost' }]));
    collector.discard();
    assert.equal(collected(collector).of('kept')?.count, 1);
    assert.equal(collected(collector).of('lost'), undefined);
  });

  test('cuts an example to 64 characters, and no character in half', () => {
    const collector = new CatalogueCollector(() => AT);
    collector.add(batchOf([{ name: 'seen', properties: { long: 'a'.repeat(62) + '😀'.repeat(9), $event_id: 'e1' } }]));
    collector.commit();
    const properties = collected(collector).of('seen')?.properties;
    assert.deepEqual(
      properties?.map(({ name, examples }) => [name, examples]),
      [['long', [`${'a'.repeat(62)}…`]]],
    );
  });
});

test('the catalogue counts each event once, whatever conflicts there are, and has all of it when the processor stops', async () => {
  await using scope = new AsyncDisposableStack();
  const folder = folderIn(scope);
  const entries = Array.from({ length: 40 }, (_, n) =>
    entryOf([{ identifiers: { user_id: `user-${n % 7}` }, events: [{ event_name: 'sent', n }] }], {
      ...{ traceId: traceIdOf(AT, n), tenantId: TENANT, receivedAt: AT + n, keyKind: 'secret', idempotencyKey: null },
    }),
  );
  await appendAll(folder, entries);
  const real = openSqliteStoreWriter({ file: storeFileOf(folder) });
  scope.defer(() => real.close());
  let commits = 0;
  const begin = async (): Promise<WriteTransaction> => {
    const transaction = await real.begin();
    return override(transaction, {
      commit: async (durable) => {
        commits += 1;
        if (commits % 2 === 1 && !durable) throw new StoreConflictError('another one was first');
        await transaction.commit(durable);
      },
    });
  };
  const conflicting = override<StoreWriter>(real, { begin });
  await processAll(folder, { isStoreShared: true, writer: conflicting });
  await withStore(storeFileOf(folder), async (store) => {
    const sent = await store.cataloguedEvent(TENANT, 'sent');
    assert.equal(sent?.count, 40);
    assert.equal(sent.properties[0]?.count, 40);
  });
  assert.ok(commits > 2);
});
