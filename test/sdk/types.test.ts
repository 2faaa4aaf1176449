/** What the types of a plan allow and refuse. The compiler is the test; that it runs shows that the calls are made. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { Sluice } from '../../sdk/src/server.ts';

interface ShopPlan {
  order_placed: { revenue: number; currency: string };
  cart_opened: { items?: number };
}

suite('A client with a plan', () => {
  const names: string[] = [];
  const options = {
    url: 'http://127.0.0.1:9',
    key: 'pk_test',
    before: ({ event }: { event: { event_name: string } }): null => {
      names.push(event.event_name);
      return null;
    },
  };

  test('takes the events of the plan with their properties, and no others', () => {
    const shop = new Sluice<ShopPlan>(options);
    shop.track('order_placed', { revenue: 42.5, currency: 'EUR' });
    shop.track('cart_opened');
    shop.track('cart_opened', { items: 2 }, { timestamp: new Date() });
    shop.user({ user_id: 'ada' }).track('cart_opened', { items: 2 });
    // @ts-expect-error: properties that the plan requires are missing
    shop.track('order_placed');
    // @ts-expect-error: a property of the wrong type
    shop.track('order_placed', { revenue: '42.5', currency: 'EUR' });
    // @ts-expect-error: a name that is not in the plan
    shop.track('order_palced', {});
    // @ts-expect-error: a property that is not in the plan
    shop.user({ user_id: 'ada' }).track('cart_opened', { item: 2 });
    assert.equal(names.length, 8);
  });

  test('takes any event without a plan', () => {
    new Sluice(options).track('anything', { at: { all: true } });
    assert.equal(names.at(-1), 'anything');
  });
});
