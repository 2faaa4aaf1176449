/** The responses that the page gets, compared with the OpenAPI document. */

import assert from 'node:assert/strict';
import { suite, type TestContext, test } from 'node:test';
import type { TSchema } from 'typebox';
import { Check, Errors } from 'typebox/value';
import { allocateMetrics } from '../../src/telemetry/metrics.ts';
import { inlined, openApiDocument } from './document.ts';
import { startMemberApp } from './member-app.ts';

const DOCUMENT = await openApiDocument();

function schemaOf(title: string): TSchema {
  assert.ok(title in DOCUMENT.components.schemas, title);
  return inlined(DOCUMENT, DOCUMENT.components.schemas[title]) as TSchema;
}

/** Fields that are not described are found too: a schema lets them pass. */
function assertIs(title: string, value: unknown): void {
  const schema = schemaOf(title);
  assert.ok(Check(schema, value), JSON.stringify([Errors(schema, value), value]));
  const fields = (schema as { properties?: object }).properties ?? {};
  assert.deepEqual(Object.keys(value as object).sort(), Object.keys(fields).sort());
}

async function start(context: TestContext) {
  const running = await startMemberApp(context, { metricsBuffer: allocateMetrics(1) });
  const { cookie } = await running.join('ada@example.com');
  const headers = { 'sluice-environment': 'development' };
  const get = async (path: string): Promise<unknown> => (await running.ask('GET', path, { cookie, headers })).body;
  const post = async (path: string, json: object): Promise<unknown> =>
    (await running.ask('POST', path, { cookie, json })).body;
  return { ...running, get, post };
}

suite('The schemas of the responses that the page gets', () => {
  test('are right about health', async (t) => {
    const { get } = await start(t);
    const health = await get('/health');
    assertIs('Health', health);
    const setting = (health as { settings: object[] }).settings[0] ?? {};
    assert.deepEqual(Object.keys(setting), ['name', 'value', 'default', 'source', 'description']);
  });

  test('are right about keys', async (t) => {
    const { get, post } = await start(t);
    const options = { name: 'Shop', kind: 'publishable', environment: 'production', origins: ['https://shop.example'] };
    assert.ok(Check(schemaOf('KeyOptions'), options));
    const made = (await post('/keys', options)) as { row: { id: string } };
    assertIs('CreatedKey', made);
    assertIs('Key', made.row);
    assertIs('RolledKey', await post(`/keys/${made.row.id}/roll`, { overlap_seconds: 60 }));
    assertIs('Key', await post(`/keys/${made.row.id}/revoke`, { name: 'Shop' }));
    assertIs('KeyList', await get('/keys'));
  });

  test('are right about sessions, members and invitations', async (t) => {
    const { get, post, invitationFor } = await start(t);
    assertIs('Session', await get('/session'));
    assertIs('CreatedInvitation', await post('/invitations', { email: 'bob@example.com' }));
    assertIs('MemberList', await get('/members'));
    for (const email of ['eve@example.com', undefined]) {
      const token = await invitationFor(email === undefined ? {} : { email });
      assertIs('InvitationLook', await post('/invitations/look', { token }));
    }
  });
});
