/** The catalogue over the API, on a real server: events and properties as they came in, and what the plan hides. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { useServer } from '../edge/fixture.ts';
import { eventually, type HttpResponse } from '../server.ts';
import { tenant } from './reading-tenant.ts';

interface Property {
  readonly name: string;
  readonly share: number;
  readonly types: readonly { readonly type: string; readonly share: number }[];
  readonly examples: readonly string[];
  readonly is_personal: boolean;
}
interface Details {
  readonly count: number;
  readonly is_sampled: boolean;
  readonly properties: readonly Property[];
}

const server = useServer();
const NAME = 'order / 50 % off 😀';
const PATH = `/catalogue/${encodeURIComponent(NAME)}`;

test('events and their properties are in the catalogue, and what the plan marks as personal is masked', async () => {
  const { get, act, send } = await tenant(server());
  await send({
    users: [
      {
        identifiers: { user_id: 'u', first_name: 'Ada' },
        user_properties: { plan: 'pro' },
        events: [
          { event_name: NAME, total: 12.5, card: '4242', revenue: 3, $event_id: 'e1' },
          { event_name: NAME, total: null },
        ],
      },
    ],
  });
  const { body } = await eventually('the catalogue is flushed', async (): Promise<HttpResponse | undefined> => {
    const response = await get(PATH);
    return response.status === 200 ? response : undefined;
  });
  const { count, is_sampled, properties } = body as Details;
  assert.deepEqual([count, is_sampled], [2, false]);
  assert.deepEqual(
    properties.map(({ name, share, types, examples }) => [name, share, types.map(({ type }) => type), examples]),
    [
      ['total', 1, ['number', 'null'], ['12.5']],
      ['card', 0.5, ['string'], ['4242']],
      ['revenue', 0.5, ['number'], ['3']],
    ],
  );
  const { events, user_properties, profile_fields } = (await get('/catalogue')).body as {
    events: { event_name: string; count: number; property_count: number }[];
    user_properties: Details;
    profile_fields: Details;
  };
  assert.deepEqual(
    events.map(({ event_name, count: of, property_count }) => [event_name, of, property_count]),
    [[NAME, 2, 3]],
  );
  assert.deepEqual(user_properties.properties[0]?.examples, ['pro']);
  assert.deepEqual(profile_fields.properties[0]?.examples, []);

  const personal = { type: 'object', properties: { card: { type: 'string', 'x-personal': true } } };
  const setProperties = { type: 'object', properties: { plan: { type: 'string', 'x-personal': true } } };
  const pushed = await act('PUT', '/plan', {
    events: { [NAME]: { mode: 'off', schema: personal } },
    user_properties: { mode: 'off', schema: setProperties },
  });
  assert.equal(pushed.status, 200, pushed.text);
  const masked = ((await get(PATH)).body as Details).properties.map(({ name, examples, is_personal }) => [
    name,
    examples,
    is_personal,
  ]);
  assert.deepEqual(masked, [
    ['total', ['12.5'], false],
    ['card', ['•••'], true],
    ['revenue', ['3'], false],
  ]);
  const people = (await get('/catalogue')).body as { user_properties: Details };
  assert.deepEqual(people.user_properties.properties[0]?.examples, ['•••']);
});

test('an event name that was never received is not found, however long it is', async () => {
  const { get } = await tenant(server());
  for (const name of ['never', '😀'.repeat(512), '%00', '%F0%9F'])
    assert.equal((await get(`/catalogue/${name}`)).status, 404);
  assert.equal((await get('/catalogue?limit=1')).status, 400);
});

test('docs/catalogue.md shows what the server responds with', async () => {
  const { key, get } = await tenant(server());
  const guide = readFileSync(new URL('../../docs/catalogue.md', import.meta.url), 'utf8');
  const snippets = [...guide.matchAll(/^```(\w+)\n(.*?)^```$/gms)];
  const [sending, ...asking] = snippets.flatMap(([, language, text = '']) => (language === 'sh' ? [text] : []));
  // Commands of `sluice plan` are run by test/cli/plan-infer.test.ts.
  const isShown = ([, language = '', text = '']: readonly string[]): boolean =>
    language === 'json' || (language === 'text' && !text.includes('npx sluice'));
  const shown = snippets.filter(isShown).map(([, , text = '']) => text);
  const [ask = ''] = sending?.split('\n') ?? [];
  const env = { ...process.env, SLUICE_URL: server().baseUrl, SLUICE_KEY: key };
  const run = (script: string) => promisify(execFile)('bash', ['-euo', 'pipefail', '-c', script], { env });
  await run(sending ?? '');
  await eventually('the catalogue is flushed', async () => (await get('/catalogue/order_placed')).status === 200);
  assert.equal(asking.length, shown.length);
  for (const [index, script] of asking.entries()) {
    const { stdout } = await run(`${ask}\n${script}`);
    assert.equal(steady(stdout), steady(shown[index] ?? ''));
  }
});

/** Times and keys differ from run to run. */
function steady(text: string): string {
  const compact = text.startsWith('{') ? JSON.stringify(JSON.parse(text)) : text.trim();
  return compact
    .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, 'time')
    .replaceAll(/key_[0-9A-Za-z]{12}/g, 'key');
}
