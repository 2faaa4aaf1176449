/**
 * CSRF: a change that a browser is made to send by a page of another site is refused, whatever the route. The routes
 * come from the app itself, so a new one is tested from its first day; and the rule by itself.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { isSameOrigin } from '../../src/api/session-cookie.ts';
import { PROFILE_ID } from './canned-store.ts';
import { PASSWORD, startMemberApp } from './member-app.ts';

const FOREIGN: [string, Record<string, string>][] = [
  ['no Origin', {}],
  ['another origin', { origin: 'https://evil.example' }],
  ['another origin that says it is the same', { origin: 'https://evil.example', 'sec-fetch-site': 'same-origin' }],
  ['a sandboxed page', { origin: 'null' }],
  ['another port', { origin: 'http://127.0.0.1:1' }],
  ['another scheme', { origin: 'https://HOST' }],
  ['a name that begins like ours', { origin: 'http://HOST.evil.example' }],
  ['another host with ours before it', { origin: 'http://HOST@evil.example' }],
  ['a request from another site', { 'sec-fetch-site': 'cross-site' }],
  ['a request from a neighbouring site', { 'sec-fetch-site': 'same-site' }],
  ['a request from nowhere', { 'sec-fetch-site': 'none' }],
  ['our origin, but from another site', { origin: 'http://HOST', 'sec-fetch-site': 'cross-site' }],
  ['an Origin that cannot be read', { origin: '://' }],
  ['an Origin of nothing', { origin: '' }],
];

suite('Every route that changes something', () => {
  for (const [what, headers] of FOREIGN) {
    test(`refuses a signed-in browser with ${what}, and nothing has changed`, async (t) => {
      const running = await startMemberApp(t);
      const { cookie, member } = await running.join('ada@example.com', { password: PASSWORD });
      const invitation = await running.invitationFor({ email: 'b@example.com' });
      const host = running.origin.slice('http://'.length);
      const sent = Object.fromEntries(
        Object.entries(headers).map(([name, value]) => [name, value.replace('HOST', host)]),
      );
      let tested = 0;
      for (const [url, methods] of running.app.methodsByPath) {
        for (const method of methods) {
          if (method === 'GET' || method === 'HEAD') continue;
          const path = url.replace(':id', PROFILE_ID).replace('*', 'x');
          const response = await running.ask(method, path, {
            cookie,
            origin: null,
            headers: { ...sent, 'sluice-environment': 'development' },
            ...(method === 'POST' && { json: { email: 'ada@example.com', password: PASSWORD } }),
          });
          assert.equal(response.status, 403, `${method} ${url}: ${response.text}`);
          assert.match(response.text, /"message":"this request must come from a page of this server/);
          assert.equal(response.cookie, undefined);
          assert.equal(response.headers['access-control-allow-origin'], undefined);
          tested++;
        }
      }
      assert.ok(tested >= 9, `${tested}`);
      assert.deepEqual(running.asked, []);
      assert.equal((await running.ask('GET', '/session', { cookie })).status, 200);
      assert.equal((await running.members.members(member.accountId)).length, 1);
      assert.equal((await running.ask('POST', '/invitations/look', { json: { token: invitation } })).status, 200);
    });
  }

  test('of the page refuses it without a cookie as well, so that no one can sign a person in as another', async (t) => {
    const running = await startMemberApp(t);
    await running.join('ada@example.com', { password: PASSWORD });
    const token = await running.invitationFor();
    for (const [path, json] of [
      ['/session', { email: 'ada@example.com', password: PASSWORD }],
      ['/invitations/accept', { token, email: 'b@example.com', password: PASSWORD }],
      ['/invitations/look', { token }],
    ] as const) {
      const response = await running.ask('POST', path, { json, origin: 'https://evil.example' });
      assert.deepEqual([response.status, response.cookie], [403, undefined]);
    }
  });

  test('takes a request of our own page: by Origin, by Sec-Fetch-Site, or by the public address', async (t) => {
    const running = await startMemberApp(t, { publicUrl: 'https://sluice.example' });
    for (const headers of [
      { origin: running.origin },
      { 'sec-fetch-site': 'same-origin' },
      { origin: 'https://sluice.example', 'sec-fetch-site': 'same-origin' },
    ]) {
      const { status } = await running.ask('DELETE', '/session', { origin: null, headers });
      assert.equal(status, 204);
    }
  });

  test('needs no Origin with a key, since no page of another site has one', async (t) => {
    const running = await startMemberApp(t);
    const { status } = await running.ask('DELETE', `/profiles/${PROFILE_ID}`, {
      origin: 'https://evil.example',
      headers: { authorization: 'Bearer sk_dev_short' },
    });
    assert.equal(status, 401);
  });
});

suite('The rule', () => {
  const RULES: [string, Parameters<typeof isSameOrigin>, boolean][] = [
    ['reading is free', ['GET', { origin: 'https://evil.example', host: 'a' }, ''], true],
    ['HEAD is free', ['HEAD', { host: 'a' }, ''], true],
    ['OPTIONS is not', ['OPTIONS', { host: 'a' }, ''], false],
    ['capitals do not matter', ['POST', { origin: 'http://Sluice.Example', host: 'sluice.EXAMPLE' }, ''], true],
    ['a default port does not matter', ['POST', { origin: 'http://a', host: 'a:80' }, ''], true],
    ['IPv6 works', ['POST', { origin: 'http://[::1]:8080', host: '[::1]:8080' }, ''], true],
    ['no Host is no match', ['POST', { origin: 'http://a' }, ''], false],
    ['a strange Host is no match', ['POST', { origin: 'http://a', host: 'a b' }, ''], false],
    [
      'https counts where a proxy says so',
      ['POST', { origin: 'https://a', host: 'a', 'x-forwarded-proto': 'https' }, ''],
      true,
    ],
    ['http does not, then', ['POST', { origin: 'http://a', host: 'a', 'x-forwarded-proto': 'https' }, ''], false],
    ['an empty public address matches nothing', ['POST', { origin: '', host: 'a' }, ''], false],
  ];
  for (const [what, given, expected] of RULES) {
    test(what, () => assert.equal(isSameOrigin(...given), expected));
  }
});
