/** The contract of the store: the catalogue of event names and properties as they are received, within its bounds. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { CatalogueCollector } from '../../src/processor/catalogue.ts';
import type { CatalogueDetails, CatalogueProperty } from '../../src/store.ts';
import type { Observation } from '../../src/store-writer.ts';
import { EVENT_NAMES_MAX, PROPERTIES_MAX } from '../../src/views/catalogue.ts';
import {
  DAY_MS,
  feed,
  type OpenStore,
  OTHER_TENANT,
  PROCESSED_AT,
  person,
  profileOf,
  type Request,
  request,
  type StoreUnderTest,
  START,
  sweepAll,
  TENANT,
} from './store-feeding.ts';

export function storeCatalogueContract(open: OpenStore): void {
  suite('the catalogue', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    /** Takes in one request, and flushes what was observed. */
    const observe = async (users: readonly unknown[], about: Request = {}, now = PROCESSED_AT): Promise<void> => {
      const catalogue = new CatalogueCollector(() => now);
      await feed(under, [request(users, about)], { catalogue });
      await flush(catalogue);
    };
    const flush = (catalogue: CatalogueCollector): Promise<void> => {
      const { observations, since } = catalogue.observations();
      return write(observations, since);
    };
    const write = async (observations: readonly Observation[], since = PROCESSED_AT): Promise<void> => {
      const transaction = await under.writer.begin();
      await transaction.writeCatalogue(observations, since);
      await transaction.commit(true);
    };
    const detailsOf = async (name: string): Promise<CatalogueDetails> => {
      const details = await under.store.cataloguedEvent(TENANT, name);
      assert.ok(details, `${name} is not in the catalogue`);
      return details;
    };
    const propertyOf = async (name: string, property: string): Promise<CatalogueProperty> => {
      const found = (await detailsOf(name)).properties.find((one) => one.name === property);
      assert.ok(found, `${property} is not a property of ${name}`);
      return found;
    };

    test('an event name has its count, its times and its keys', async () => {
      await observe([person({ user_id: 'a' }, [{}, {}])], { receivedAt: START, keyId: 'key_a' });
      await observe([person({ user_id: 'b' }), person({ user_id: 'c' }, [{ event_name: 'left' }])], {
        receivedAt: START + 5,
        keyId: 'key_b',
      });
      const { events, otherEvents } = await under.store.catalogue(TENANT);
      assert.deepEqual(events, [
        {
          ...{ name: 'left', count: 1, examined: 1, firstSeen: START + 5, lastSeen: START + 5 },
          ...{ keyIds: ['key_b'], propertyCount: 0, changes: [] },
        },
        {
          ...{ name: 'tested', count: 3, examined: 3, firstSeen: START, lastSeen: START + 5 },
          ...{ keyIds: ['key_a', 'key_b'], propertyCount: 0, changes: [] },
        },
      ]);
      assert.equal(otherEvents, 0);
    });

    test('a property has its types, how many events have it, its times and a few examples', async () => {
      const event = { total: 12.5, coupon: 'SPRING', items: [{ sku: 1 }], gift: true, note: null, shop: { id: 7 } };
      await observe([person({ user_id: 'a' }, [event, { total: '12.50', revenue: 3, event_value: 1.5 }])], {
        receivedAt: START,
      });
      const types = async (name: string) =>
        (await propertyOf('tested', name)).types.map(({ type, count }) => [type, count]);
      assert.deepEqual(await propertyOf('tested', 'total'), {
        ...{ name: 'total', count: 2, firstSeen: START, lastSeen: START, examples: ['12.5', '12.50'] },
        types: [
          { type: 'string', count: 1, firstSeen: START },
          { type: 'number', count: 1, firstSeen: START },
        ],
      });
      assert.deepEqual(await types('items'), [['array', 1]]);
      assert.deepEqual(await types('gift'), [['boolean', 1]]);
      assert.deepEqual(await types('note'), [['null', 1]]);
      assert.deepEqual(await types('shop'), [['object', 1]]);
      assert.deepEqual(await types('revenue'), [['number', 1]]);
      assert.deepEqual(await types('event_value'), [['number', 1]]);
      assert.deepEqual((await propertyOf('tested', 'shop')).examples, []);
      assert.equal((await detailsOf('tested')).propertyCount, 8);
    });

    test('what users set on people is described without a value of a profile field', async () => {
      await observe([person({ user_id: 'a', first_name: 'Ada' }, [{}], { plan: 'pro' }), person({ user_id: 'b' })]);
      const { userProperties, profileFields } = await under.store.catalogue(TENANT);
      const shown = (details: CatalogueDetails | null) =>
        details?.properties.map(({ name, count, examples }) => [name, count, examples]);
      assert.deepEqual(shown(userProperties), [['plan', 1, ['pro']]]);
      assert.deepEqual(shown(profileFields), [['first_name', 1, []]]);
      assert.equal(userProperties?.count, 1);
    });

    test('a property, and a type, that come later are changes; those of a new event name and nulls are not', async () => {
      await observe([person({ user_id: 'a' }, [{ total: 1 }])], { receivedAt: START });
      assert.deepEqual((await detailsOf('tested')).changes, []);
      await observe([person({ user_id: 'a' }, [{ total: null }])], { receivedAt: START + 1 });
      await observe([person({ user_id: 'a' }, [{ total: '1', coupon: 'x' }])], { receivedAt: START + 2 });
      assert.deepEqual((await detailsOf('tested')).changes, [
        { property: 'total', type: 'string', at: START + 2 },
        { property: 'coupon', type: null, at: START + 2 },
      ]);
    });

    test('duplicates and rejected users are not counted', async () => {
      const [first, second] = [START, START + 1].map((receivedAt) =>
        request([person({ user_id: 'a' }, [{ $event_id: 'once' }]), 7], { receivedAt }),
      );
      assert.ok(first && second);
      const catalogue = new CatalogueCollector(() => PROCESSED_AT);
      await feed(under, [first, second], { catalogue });
      await flush(catalogue);
      assert.equal((await detailsOf('tested')).count, 1);
    });

    test('more names than the bound are counted together, and known names stay', async () => {
      const seen = (name: string, count = 1): Observation => ({
        ...{ tenantId: TENANT, kind: 'event', name, count, examined: 0, firstSeen: START, lastSeen: START },
        ...{ keyIds: [], properties: [], otherProperties: 0 },
      });
      await write([seen('kept', 5), ...Array.from({ length: EVENT_NAMES_MAX - 2 }, (_, n) => seen(`name ${n}`))]);
      await write([seen('kept', 3), seen('last'), seen('too many', 7), seen('', 2)]);
      await write([seen('one more', 4)]);
      const { events, otherEvents } = await under.store.catalogue(TENANT);
      assert.equal(events.length, EVENT_NAMES_MAX);
      assert.equal(events.find(({ name }) => name === 'kept')?.count, 8);
      assert.ok(events.some(({ name }) => name === 'last'));
      assert.equal(otherEvents, 13);
      assert.equal(await under.store.cataloguedEvent(TENANT, ''), undefined);
    });

    test('more properties than the bound are counted together', async () => {
      const many = Object.fromEntries(Array.from({ length: PROPERTIES_MAX + 5 }, (_, n) => [`p${n}`, n]));
      await observe([person({ user_id: 'a' }, [many])]);
      await observe([person({ user_id: 'a' }, [{ another: 1, p0: 2 }])]);
      const { properties, otherProperties } = await detailsOf('tested');
      assert.equal(properties.length, PROPERTIES_MAX);
      assert.equal(otherProperties, 6);
      assert.equal(properties[0]?.count, 2);
    });

    test('an erase removes all examples, also those that were collected and not flushed yet', async () => {
      const late = new CatalogueCollector(() => START);
      await observe([person({ user_id: 'a' }, [{ coupon: 'SPRING' }], { plan: 'pro' })], { receivedAt: START }, START);
      await feed(under, [request([person({ user_id: 'a' }, [{ coupon: 'SUMMER' }])], { receivedAt: START })], {
        catalogue: late,
      });
      const { id } = await profileOf(under, 'user_id', 'a');
      const audit = { traceId: '01890000-0000-7000-8000-000000000000', at: START + 1_000 };
      assert.equal(await under.store.erase(TENANT, id, audit), true);
      const examples = async () => {
        const { userProperties } = await under.store.catalogue(TENANT);
        return [await propertyOf('tested', 'coupon'), ...(userProperties?.properties ?? [])].map((one) => one.examples);
      };
      assert.deepEqual(await examples(), [[], []]);
      await flush(late);
      assert.deepEqual(await examples(), [[], []]);
      assert.equal((await propertyOf('tested', 'coupon')).count, 2);
      await observe([person({ user_id: 'b' }, [{ coupon: 'AUTUMN' }])], {}, START + DAY_MS);
      assert.deepEqual(await examples(), [['AUTUMN'], []]);
    });

    test('retention removes what is not seen any more, and examples after a week', async () => {
      const day = (n: number): number => START + n * DAY_MS;
      await observe([person({ user_id: 'a' }, [{ event_name: 'old', coupon: 'x' }])], { receivedAt: day(0) });
      await observe([person({ user_id: 'a' }, [{ event_name: 'young', coupon: 'y' }])], { receivedAt: day(20) });
      await sweepAll(under, { eventsMs: 30 * DAY_MS }, day(29));
      assert.deepEqual((await propertyOf('old', 'coupon')).examples, []);
      await sweepAll(under, {}, day(89));
      assert.equal((await detailsOf('old')).count, 1);
      await sweepAll(under, {}, day(91));
      assert.equal(await under.store.cataloguedEvent(TENANT, 'old'), undefined);
      await sweepAll(under, { eventsMs: 75 * DAY_MS }, day(94));
      assert.equal((await detailsOf('young')).count, 1);
      await sweepAll(under, { eventsMs: 75 * DAY_MS }, day(96));
      assert.equal(await under.store.cataloguedEvent(TENANT, 'young'), undefined);
    });

    test('an example goes when its property has not been seen for a week, though the event still comes', async () => {
      await observe([person({ user_id: 'a' }, [{ coupon: 'x', total: 1 }])], { receivedAt: START });
      await observe([person({ user_id: 'a' }, [{ total: 2 }])], { receivedAt: START + 8 * DAY_MS });
      assert.deepEqual((await propertyOf('tested', 'coupon')).examples, []);
      assert.deepEqual((await propertyOf('tested', 'total')).examples, ['2']);
    });

    test('a tenant sees its own events only', async () => {
      await observe([person({ user_id: 'a' })], { tenantId: OTHER_TENANT });
      assert.deepEqual((await under.store.catalogue(TENANT)).events, []);
      assert.equal(await under.store.cataloguedEvent(TENANT, 'tested'), undefined);
      assert.equal((await under.store.catalogue(OTHER_TENANT)).events.length, 1);
    });

    test('what a transaction observed counts only if it is committed', async () => {
      const catalogue = new CatalogueCollector(() => PROCESSED_AT);
      await feed(under, [request([person({ user_id: 'a' })])], { catalogue });
      const [observation] = catalogue.observations().observations;
      assert.ok(observation);
      const transaction = await under.writer.begin();
      await transaction.writeCatalogue([observation], PROCESSED_AT);
      await transaction.rollback();
      assert.deepEqual((await under.store.catalogue(TENANT)).events, []);
    });
  });
}
