/**
 * An erasure, then late data: a person is erased over the API, and older data arrives after it. It stays erased (rule
 * 17); newer data starts a new profile; and no identifier of the person is left in the files of the store.
 */

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { storeFileOf } from '../../src/data-folder/files.ts';
import { HOUR_MS } from '../../src/model.ts';
import { allEvents, ask, settled, type TraceResponse } from '../faults/processor-load.ts';
import { folderIn, launch } from '../faults/scope.ts';
import { entryOf, traceIdOf } from '../processor/history.ts';
import { appendAll, withStore } from '../processor/processing.ts';
import { eventually, post, read, readResponse, type TestServer } from '../server.ts';

const EMAIL = 'Erased.Person@Example.org';
const PHONE = '+49 151 55667788';
const ANON = 'erased-device-1';
const LATE_ANON = 'erased-device-2';
/** As they were written, and as they are matched. */
const TRACES_OF_HER = [
  EMAIL,
  EMAIL.toLowerCase(),
  PHONE,
  '+4915155667788',
  ANON,
  LATE_ANON,
  'erased-city',
  'erased-word',
];

const ADA = { user_id: 'ada-to-be-erased', email: EMAIL, phone_number: PHONE, city: 'erased-city' };

/** Which of the words are in the files of the store, as bytes. */
function foundIn(dataFolder: string, words: readonly string[]): string[] {
  const files = readdirSync(dataFolder).filter((name) => name.startsWith('store.db'));
  assert.ok(files.length > 0);
  const contents = files.map((name) => readFileSync(join(dataFolder, name)));
  return words.filter((word) => contents.some((bytes) => bytes.includes(word)));
}

async function sendHerLife({ baseUrl, key }: TestServer): Promise<void> {
  const event = { event_name: 'bought', revenue: 1.5, note: 'erased-word' };
  for (const users of [
    [{ identifiers: { anon_id: ANON }, events: [event] }],
    [{ identifiers: { ...ADA, anon_id: ANON }, user_properties: { nick: 'erased-word' }, events: [event] }],
    [{ identifiers: { user_id: 'bob' }, events: [{ event_name: 'bought' }] }],
    // Bob with her address: refused (rule 6), and noted on him.
    [{ identifiers: { user_id: 'bob', email: EMAIL }, events: [{ event_name: 'bought' }] }],
    // Rejected, and kept with its payload.
    [
      { identifiers: { user_id: 'bob' }, events: [{ event_name: 'bought' }] },
      { identifiers: ADA, events: [] },
    ],
  ]) {
    const { status } = await post({ baseUrl }, key, { users });
    assert.equal(status, 202);
  }
}

suite('A person who was erased', () => {
  test('does not come back with late data, and starts afresh with newer data', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder });
    const { key } = server;
    const beforeErase = Date.now() - HOUR_MS;
    await sendHerLife(server);
    const before = await settled(server, key);
    const { id } = await read<{ id: string }>(server, key, `/profiles?email=${encodeURIComponent(EMAIL)}`);
    assert.deepEqual(foundIn(dataFolder, TRACES_OF_HER).length, TRACES_OF_HER.length - 1, 'the search finds nothing');

    const erased = await readResponse(await ask(server.baseUrl, key, `/profiles/${id}`, { method: 'DELETE' }));
    assert.equal(erased.status, 202, erased.text);
    await eventually('it is gone', async () => (await ask(server.baseUrl, key, `/profiles/${id}`)).status === 404);
    await eventually(
      'no trace of her is left in the files',
      () => foundIn(dataFolder, TRACES_OF_HER).length === 0,
    ).catch(() => assert.deepEqual(foundIn(dataFolder, TRACES_OF_HER), []));
    const after = await settled(server, key);
    assert.equal(after.totals.events['erased'], 2);
    assert.equal(after.totals.events['received'], before.totals.events['received']);
    assert.equal((await allEvents(server, key)).length, 3);
    assert.equal(await server.stop(), 0);
    assert.deepEqual(foundIn(dataFolder, TRACES_OF_HER), []);

    const [tenantId = ''] = await withStore(storeFileOf(dataFolder), (store) => store.tenants());
    const late = (n: number, receivedAt: number, identifiers: object): ReturnType<typeof entryOf> =>
      entryOf([{ identifiers, user_properties: { late: n }, events: [{ event_name: `late ${n}` }] }], {
        traceId: traceIdOf(receivedAt, n),
        tenantId,
        receivedAt,
        keyKind: 'secret',
        idempotencyKey: null,
      });
    const newer = Date.now() + 1_000;
    const old = [
      late(1, beforeErase, ADA),
      late(2, beforeErase + 1, { email: EMAIL.toLowerCase() }),
      late(3, beforeErase + 2, { anon_id: ANON }),
      // What she was not known by before is dropped with her, and does not become a person.
      late(4, beforeErase + 3, { user_id: ADA.user_id, anon_id: LATE_ANON }),
    ];
    const fresh = late(5, newer, { user_id: ADA.user_id });
    await appendAll(dataFolder, [...old, fresh]);

    const again = await launch(scope, { dataFolder });
    const ledger = await settled(again, key);
    assert.equal(ledger.totals.events['erased'], 2 + old.length);
    assert.equal((await ask(again.baseUrl, key, `/profiles/${id}`)).status, 404);
    for (const query of [`email=${encodeURIComponent(EMAIL)}`, `anon_id=${ANON}`, `anon_id=${LATE_ANON}`]) {
      assert.equal((await ask(again.baseUrl, key, `/profiles?${query}`)).status, 404, query);
    }
    for (const { traceId } of old) {
      const trace = await read<TraceResponse & { users: { warnings: string[] }[] }>(again, key, `/traces/${traceId}`);
      assert.deepEqual([trace.users[0]?.events, trace.users[0]?.profile_id], [0, null]);
      assert.match(trace.users[0]?.warnings.join() ?? '', /erased/);
    }
    const profile = await read<{ id: string; event_count: number; user_properties: object }>(
      again,
      key,
      `/profiles?user_id=${ADA.user_id}`,
    );
    assert.notEqual(profile.id, id);
    assert.equal(profile.event_count, 1);
    assert.deepEqual(profile.user_properties, { late: 5 });
    assert.equal(await again.stop(), 0);
    assert.deepEqual(foundIn(dataFolder, TRACES_OF_HER), []);
  });
});
