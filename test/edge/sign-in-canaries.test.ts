/**
 * E-mails, passwords, tokens and cookies of those who sign in, marked so that they can be found again, on every path from
 * the first link to signing out, taken and refused. Then everything that the server said is searched for them, and the
 * files for what must not be in them.
 */

import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import type { HttpResponse } from '../server.ts';
import { ask, useServer } from './fixture.ts';

const OWN_PAGE = { 'sec-fetch-site': 'same-origin' };
const MAIL = 'canary@private.example';
const PASSWORD = 'canary and more';
const NEXT_PASSWORD = 'canary and much more';
const ANY_CANARY = /canar|private\.example|203\.0\.113/i;

suite('What people sign in with', () => {
  const server = useServer();
  const secrets: string[] = [PASSWORD, NEXT_PASSWORD];

  async function call(method: string, path: string, json: object | null, headers: object = {}): Promise<HttpResponse> {
    return ask(server(), path, {
      method,
      headers: {
        ...OWN_PAGE,
        'x-forwarded-for': '203.0.113.9',
        'user-agent': 'canary',
        ...(json !== null && { 'content-type': 'application/json' }),
        ...headers,
      },
      body: json === null ? null : JSON.stringify(json),
    });
  }

  function cookieOf({ headers }: HttpResponse): string {
    const cookie = headers.get('set-cookie')?.split(';')[0] ?? '';
    assert.match(cookie, /^sluice_session=[\w-]{43}$/);
    secrets.push(cookie.slice('sluice_session='.length));
    return cookie;
  }

  test('is sent back to its sender alone, from the first link to signing out', async () => {
    const [, token = ''] = /welcome#([\w-]{43})/.exec(server().stdout()) ?? [];
    const joined = await call('POST', '/invitations/accept', { token, email: MAIL, password: PASSWORD });
    assert.equal(joined.status, 200, joined.text);
    const first = { cookie: cookieOf(joined) };
    const passwords = { current_password: PASSWORD, new_password: NEXT_PASSWORD };
    const second = { cookie: cookieOf(await call('POST', '/session/password', passwords, first)) };
    const invited = await call('POST', '/invitations', { email: 'canary2@private.example' }, second);
    assert.equal(invited.status, 201);
    secrets.push(token, (invited.body as { link: string }).link.split('#')[1] ?? '');
    const signedIn = await call('POST', '/session', { email: MAIL, password: NEXT_PASSWORD }, second);
    const third = { cookie: cookieOf(signedIn) };
    assert.equal((await call('DELETE', '/session', null, third)).status, 204);

    const refused: [number, string, object, object][] = [
      [401, '/session', { email: MAIL, password: PASSWORD }, third],
      [401, '/session', { email: 'canary3@private.example', password: PASSWORD }, {}],
      [400, '/session', { email: MAIL, canary: PASSWORD }, {}],
      [400, '/session', { email: MAIL, password: [PASSWORD] }, {}],
      [403, '/session', { email: MAIL, password: PASSWORD }, { origin: 'https://canary.example' }],
      [404, '/invitations/look', { token }, {}],
      [404, '/invitations/accept', { token: 'canary', email: MAIL, password: PASSWORD }, {}],
      [401, '/session/password', passwords, first],
    ];
    for (const [status, path, json, headers] of refused) {
      const response = await call('POST', path, json, headers);
      assert.equal(response.status, status, `${path}: ${response.text}`);
      assert.doesNotMatch(response.text, ANY_CANARY);
    }
  });

  test('is in no log line and no metric', async () => {
    assert.doesNotMatch(server().stderr(), ANY_CANARY);
    assert.doesNotMatch(server().stdout(), ANY_CANARY);
    assert.doesNotMatch((await ask(server(), '/metrics')).text, ANY_CANARY);
    assert.equal(secrets.length, 7);
    for (const secret of secrets) assert.ok(!server().stderr().includes(secret));
  });

  test('is in no file, but for the e-mail', () => {
    const folder = server().dataFolder;
    const names = readdirSync(folder, { recursive: true, encoding: 'utf8' });
    const files = names.map((name) => join(folder, name)).filter((file) => statSync(file).isFile());
    const content = Buffer.concat(files.map((file) => readFileSync(file))).toString('latin1');
    assert.ok(content.includes(MAIL));
    for (const secret of [...secrets, '203.0.113.9']) assert.ok(!content.includes(secret), secret);
  });
});
