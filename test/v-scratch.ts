import { test } from 'node:test';
import { openFor } from './backends/postgres/store-under-test.ts';
import { processBatch } from '../src/processor/batch.ts';
import { person, profileOf, request, send, START, TENANT } from './contract/store-feeding.ts';
test('x', async (context) => {
  const under = await openFor(context);
  await send(under, [person({ email: 'ada@x.org', user_id: 'u' })], { receivedAt: START });
  const { id } = (await profileOf(under, 'user_id', 'u')) as unknown as { id: string };
  const t = await under.writer.begin();
  await t.advance(5, 0, 1);
  const rec = { ...request([{ identifiers: { email: 'ada@x.org' }, events: 'no' }], { receivedAt: START + 10 }), partition: 5, position: 0 };
  await processBatch(t, [rec as never], { options: { defaultCountry: null, junkValues: new Set<string>() }, now: () => START, failpoint: () => undefined } as never);
  console.log('erased', await under.store.erase(TENANT, id, { traceId: '01900000-0000-7000-8000-000000000001', at: START + 1000 } as never));
  await t.commit(false);
  console.log((await under.pool.query('SELECT payload FROM rejections')).rows);
});
