/** Signing in and out: passwords, cookies, how long a session lasts, and what slows those who guess. */

import assert from 'node:assert/strict';
import { argon2Sync } from 'node:crypto';
import { suite, test } from 'node:test';
import { DAY_MS, MINUTE_MS } from '../../src/model.ts';
import { StoreUnavailableError } from '../../src/store-writer.ts';
import { BEHIND_PROXY, type MemberApp, NOW, PASSWORD, startMemberApp } from './member-app.ts';
import { brokenStore } from './running-app.ts';

const EMAIL = 'ada@example.com';
const WRONG = { email: EMAIL, password: 'wrong horse battery' };
const RIGHT = { email: EMAIL, password: PASSWORD };

function signIn({ ask }: MemberApp, json: unknown, options: object = {}) {
  return ask('POST', '/session', { json, ...options });
}

suite('Signing in', () => {
  test('gives a session to the right password, with the e-mail in capitals or with blanks around it', async (t) => {
    const running = await startMemberApp(t);
    const { member } = await running.join('Ada@example.com', { password: PASSWORD });
    for (const email of [EMAIL, 'ADA@EXAMPLE.COM', ' ada@example.com ']) {
      const response = await signIn(running, { email, password: PASSWORD });
      assert.equal(response.status, 200, response.text);
      assert.deepEqual(response.body, {
        member: { id: member.id, email: 'Ada@example.com' },
        account: { id: member.accountId, name: 'own' },
        environments: ['production', 'development'],
        server: { url: running.origin, version: '1.2.3' },
      });
      const again = await running.ask('GET', '/session', { cookie: response.cookie ?? '' });
      assert.deepEqual([again.status, again.body], [200, response.body]);
      assert.equal(again.headers['cache-control'], 'no-store');
    }
  });

  test('is refused with the same words for a wrong password and for an unknown e-mail', async (t) => {
    const running = await startMemberApp(t);
    await running.join(EMAIL, { password: PASSWORD });
    const wrong = await signIn(running, WRONG);
    const nobody = await signIn(running, { email: 'nobody@example.com', password: PASSWORD });
    for (const { status, body, cookie } of [wrong, nobody]) {
      assert.equal(status, 401);
      const { error, message } = body as Record<string, string>;
      assert.deepEqual([error, message], ['unauthorized', 'wrong e-mail address or password']);
      assert.equal(cookie, undefined);
    }
  });

  test('takes a password typed with other code points for the same letters', async (t) => {
    const running = await startMemberApp(t);
    await running.join(EMAIL, { password: 'Zürich-Bellevue' });
    const response = await signIn(running, { email: EMAIL, password: 'Zu\u0308rich-Bellevue' });
    assert.equal(response.status, 200);
  });

  const BODIES: [string, object, string][] = [
    ['no JSON object', { json: [RIGHT] }, 'the body must be a JSON object'],
    ['no body', {}, 'the body must be a JSON object'],
    ['plain text', { text: JSON.stringify(RIGHT), headers: { 'content-type': 'text/plain' } }, 'application/json'],
    ['a form', { text: 'email=a', headers: { 'content-type': 'application/x-www-form-urlencoded' } }, 'Unsupported'],
    ['no password', { json: { email: EMAIL } }, 'password is required'],
    ['null for an e-mail', { json: { ...RIGHT, email: null } }, 'email is required'],
    ['a number for a password', { json: { email: EMAIL, password: 1 } }, 'password must be a string'],
    ['an unknown field', { json: { ...RIGHT, remember: true } }, 'unknown field'],
    ['a very long password', { json: { email: EMAIL, password: 'x'.repeat(201) } }, 'password must have at most 200'],
  ];
  for (const [what, options, message] of BODIES) {
    test(`is 400 with the reason for ${what}`, async (t) => {
      const { ask } = await startMemberApp(t);
      const { status, body } = await ask('POST', '/session', options);
      assert.equal(status, 400);
      assert.ok((body as { message: string }).message.includes(message), JSON.stringify(body));
    });
  }

  test('ends the session that the browser had before, and never takes over a cookie that was planted', async (t) => {
    const running = await startMemberApp(t);
    const attacker = await running.join('eve@example.com');
    await running.join(EMAIL, { password: PASSWORD });
    const planted = `sluice_session=${'A'.repeat(43)}`;
    for (const cookie of [attacker.cookie, planted]) {
      const response = await signIn(running, RIGHT, { cookie });
      assert.equal(response.status, 200);
      assert.ok(response.cookie !== undefined && response.cookie !== cookie);
      assert.equal((await running.ask('GET', '/session', { cookie })).status, 401);
    }
  });

  test('replaces a hash with other parameters, once, and the password stays right', async (t) => {
    const running = await startMemberApp(t);
    const { member, cookie } = await running.join(EMAIL, { password: PASSWORD });
    const hashOf = async (): Promise<string> => (await running.members.findMember(EMAIL))?.passwordHash ?? '';
    const nonce = Buffer.from('an older salt...');
    const parameters = { message: PASSWORD, nonce, memory: 64, passes: 1, parallelism: 1, tagLength: 24 };
    const texts = [nonce, argon2Sync('argon2id', parameters)].map((bytes) =>
      bytes.toString('base64').replace(/=+$/, ''),
    );
    const old = `$argon2id$v=19$m=64,t=1,p=1$${texts.join('$')}`;
    assert.ok(await running.members.replacePasswordHash({ id: member.id, passwordHash: await hashOf() }, old));
    assert.equal((await signIn(running, WRONG)).status, 401);
    assert.equal(await hashOf(), old);
    assert.equal((await signIn(running, RIGHT)).status, 200);
    const replaced = await hashOf();
    assert.match(replaced, /^\$argon2id\$/);
    assert.equal((await running.ask('GET', '/session', { cookie })).status, 200);
    assert.equal((await signIn(running, RIGHT)).status, 200);
    assert.equal(await hashOf(), replaced);
    assert.equal((await signIn(running, WRONG)).status, 401);
  });

  test('that fails leaves the session of the browser as it was', async (t) => {
    const running = await startMemberApp(t);
    const { cookie } = await running.join(EMAIL, { password: PASSWORD });
    assert.equal((await signIn(running, WRONG, { cookie })).status, 401);
    assert.equal((await running.ask('GET', '/session', { cookie })).status, 200);
  });

  test('says which environments there are, and where the server is reached', async (t) => {
    const running = await startMemberApp(t, { environment: 'production', publicUrl: 'https://sluice.example' });
    const { cookie } = await running.join(EMAIL);
    const { body } = await running.ask('GET', '/session', { cookie });
    const { environments, server } = body as { environments: string[]; server: { url: string } };
    assert.deepEqual([environments, server.url], [['production'], 'https://sluice.example']);
  });

  test('of very many at once some are asked to retry later, and those cost no attempt', async (t) => {
    const running = await startMemberApp(t, BEHIND_PROXY);
    await running.join(EMAIL, { password: PASSWORD });
    const responses = await Promise.all(
      // From addresses of their own, so that none is slowed for the others.
      Array.from({ length: 80 }, (_, n) => {
        const headers = { 'x-forwarded-for': `203.0.113.${n}` };
        return signIn(running, { email: `${n}@x.example`, password: PASSWORD }, { headers });
      }),
    );
    const busy = responses.filter(({ status }) => status === 503);
    assert.ok(busy.length >= 1 && busy.length < 80, `${busy.length}`);
    for (const { headers, body } of busy) {
      assert.equal(headers['retry-after'], '1');
      assert.match((body as { message: string }).message, /too many people are signing in/);
    }
    assert.deepEqual(running.errors, []);
  });

  test('is 503 while members cannot be read', async (t) => {
    const reported: string[] = [];
    const { ask } = await startMemberApp(t, {
      keyStore: brokenStore(),
      onUnavailable: ({ name }) => reported.push(name),
    });
    const cookie = `sluice_session=${'A'.repeat(43)}`;
    assert.equal((await ask('POST', '/session', { json: RIGHT })).status, 503);
    assert.equal((await ask('GET', '/session', { cookie })).status, 503);
    assert.equal((await ask('GET', '/events', { cookie })).status, 503);
    assert.deepEqual(reported, Array(3).fill('StoreUnavailableError'));
  });
});

suite('The cookie', () => {
  const cases: [string, { publicUrl?: string; isTrusted?: boolean; headers?: Record<string, string> }, boolean][] = [
    ['on plain http', {}, false],
    ['where the public address is https', { publicUrl: 'https://sluice.example' }, true],
    ['where the public address is http', { publicUrl: 'http://sluice.example' }, false],
    ['behind a proxy that terminates TLS', { headers: { 'x-forwarded-proto': 'https' } }, true],
    ['behind two proxies', { headers: { 'x-forwarded-proto': 'https, http' } }, true],
    ['behind a proxy without TLS', { headers: { 'x-forwarded-proto': 'http' } }, false],
    ['behind a proxy that is not trusted', { isTrusted: false, headers: { 'x-forwarded-proto': 'https' } }, false],
  ];
  for (const [what, { publicUrl = '', isTrusted = true, headers = {} }, isSecure] of cases) {
    test(`is for this server alone, out of reach of scripts, ${isSecure ? 'and secure ' : ''}${what}`, async (t) => {
      const running = await startMemberApp(t, { ...(isTrusted && BEHIND_PROXY), publicUrl });
      await running.join(EMAIL, { password: PASSWORD });
      const isProxied = isTrusted && headers['x-forwarded-proto']?.startsWith('https') === true;
      const origin = isProxied ? running.origin.replace('http:', 'https:') : running.origin;
      const response = await signIn(running, RIGHT, { headers, origin });
      assert.equal(response.status, 200, response.text);
      const [cookie, ...others] = response.headers['set-cookie'] ?? [];
      assert.deepEqual(others, []);
      assert.match(
        cookie ?? '',
        /^sluice_session=[\w-]{43}; Path=\/; Max-Age=1209600; HttpOnly; SameSite=Lax(; Secure)?$/,
      );
      assert.equal(cookie?.endsWith('; Secure'), isSecure);
    });
  }

  for (const cookie of [
    'sluice_session=',
    'sluice_session=short',
    'sluice_session',
    'other=1',
    `x=${'A'.repeat(43)}`,
  ]) {
    test(`is no session: ${cookie}`, async (t) => {
      const { ask } = await startMemberApp(t);
      const { status, text } = await ask('GET', '/session', { cookie });
      assert.deepEqual([status, text], [401, '{"error":"unauthorized"}']);
    });
  }

  test('is found among others', async (t) => {
    const { ask, join } = await startMemberApp(t);
    const { cookie } = await join(EMAIL);
    const { status } = await ask('GET', '/session', { cookie: `a=b; xsluice_session=1; ${cookie}; c="d"` });
    assert.equal(status, 200);
  });
});

suite('A session', () => {
  test('lasts 14 days from its last use, is written at most every 10 minutes, and the cookie is renewed', async (t) => {
    const { ask, join, clock } = await startMemberApp(t);
    const { cookie } = await join(EMAIL);
    const use = async (at: number) => {
      clock.now = at;
      const response = await ask('GET', '/session', { cookie });
      return [response.status, response.cookie];
    };
    assert.deepEqual(await use(NOW + 9 * MINUTE_MS), [200, undefined]);
    assert.deepEqual(await use(NOW + 10 * MINUTE_MS), [200, cookie]);
    assert.deepEqual(await use(NOW + 11 * MINUTE_MS), [200, undefined]);
    const last = NOW + 14 * DAY_MS;
    assert.deepEqual(await use(last), [200, cookie]);
    assert.deepEqual(await use(last + 14 * DAY_MS), [401, undefined]);
  });

  test('that was made or used while the clock was ahead lasts 14 days from its first use at the right time', async (t) => {
    const { ask, join, clock } = await startMemberApp(t);
    clock.now = NOW + 30 * DAY_MS;
    const { cookie } = await join(EMAIL);
    clock.now = NOW;
    const first = await ask('GET', '/session', { cookie });
    assert.deepEqual([first.status, first.cookie], [200, cookie]);
    clock.now = NOW + 14 * DAY_MS;
    assert.equal((await ask('GET', '/session', { cookie })).status, 401);
  });

  test('that cannot be renewed, because the disk is full, is good all the same', async (t) => {
    const running = await startMemberApp(t);
    const { cookie } = await running.join(EMAIL);
    t.mock.method(running.members, 'renewSession', () => Promise.reject(new StoreUnavailableError('disk full')));
    running.clock.now += 11 * MINUTE_MS;
    const response = await running.ask('GET', '/session', { cookie });
    assert.deepEqual([response.status, response.cookie], [200, undefined]);
    running.clock.now = NOW + 14 * DAY_MS;
    assert.equal((await running.ask('GET', '/session', { cookie })).status, 401);
  });

  test('that is not used for 14 days is over', async (t) => {
    const { ask, join, clock } = await startMemberApp(t);
    const { cookie } = await join(EMAIL);
    clock.now = NOW + 14 * DAY_MS - 1;
    assert.equal((await ask('GET', '/session', { cookie })).status, 200);
    const other = await join('b@example.com');
    clock.now += 14 * DAY_MS;
    assert.equal((await ask('GET', '/session', { cookie: other.cookie })).status, 401);
  });

  test('is over after signing out, and the cookie is cleared; signing out twice does no harm', async (t) => {
    const { ask, join } = await startMemberApp(t);
    const { cookie } = await join(EMAIL);
    for (const sent of [cookie, cookie, null]) {
      const { status, text, headers } = await ask('DELETE', '/session', { cookie: sent });
      assert.deepEqual([status, text], [204, '']);
      assert.deepEqual(headers['set-cookie'], ['sluice_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax']);
      assert.equal((await ask('GET', '/session', { cookie })).status, 401);
    }
  });
});

suite('A change of password', () => {
  test('gives a new cookie, ends all other sessions of the member, and the old password is over', async (t) => {
    const running = await startMemberApp(t);
    const { cookie } = await running.join(EMAIL, { password: PASSWORD });
    const colleague = await running.join('b@example.com');
    const other = (await signIn(running, RIGHT)).cookie ?? '';
    const json = { current_password: PASSWORD, new_password: 'staple staple' };
    const changed = await running.ask('POST', '/session/password', { cookie, json });
    assert.deepEqual([changed.status, changed.text], [204, '']);
    assert.ok(changed.cookie !== undefined && changed.cookie !== cookie);
    for (const [one, expected] of [
      [cookie, 401],
      [other, 401],
      [changed.cookie, 200],
      [colleague.cookie, 200],
    ] as const) {
      assert.equal((await running.ask('GET', '/session', { cookie: one })).status, expected);
    }
    assert.equal((await signIn(running, RIGHT)).status, 401);
    assert.equal((await signIn(running, { email: EMAIL, password: 'staple staple' })).status, 200);
  });

  test('is refused with the reason, and changes nothing, when either password is not right', async (t) => {
    const running = await startMemberApp(t);
    const { cookie } = await running.join(EMAIL, { password: PASSWORD });
    const cases: [object, string][] = [
      [{ current_password: 'wrong horse', new_password: 'staple staple' }, 'current_password is wrong'],
      [{ current_password: PASSWORD, new_password: 'too short' }, 'new_password must have at least 10 characters'],
      [{ current_password: PASSWORD, new_password: 'x'.repeat(201) }, 'new_password must have at most 200 characters'],
      [{ current_password: PASSWORD }, 'new_password is required'],
    ];
    for (const [json, message] of cases) {
      const { status, body } = await running.ask('POST', '/session/password', { cookie, json });
      assert.deepEqual([status, (body as { message: string }).message], [400, message]);
    }
    assert.equal((await running.ask('GET', '/session', { cookie })).status, 200);
    assert.equal((await signIn(running, RIGHT)).status, 200);
    const json = { current_password: PASSWORD, new_password: 'staple staple' };
    assert.equal((await running.ask('POST', '/session/password', { json })).status, 401);
  });

  test('is slowed after a few wrong guesses', async (t) => {
    const running = await startMemberApp(t);
    const { cookie } = await running.join(EMAIL, { password: PASSWORD });
    const guess = (current: string) =>
      running.ask('POST', '/session/password', {
        cookie,
        json: { current_password: current, new_password: 'staple staple' },
      });
    for (let n = 0; n < 5; n++) assert.equal((await guess('wrong horse')).status, 400);
    const slowed = await guess(PASSWORD);
    assert.deepEqual([slowed.status, slowed.headers['retry-after']], [429, '1']);
    running.clock.now += 1_000;
    assert.equal((await guess(PASSWORD)).status, 204);
  });
});
