/** Brute force: what guessing at `POST /session` comes to. The clock is the test's own. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { BEHIND_PROXY, type MemberApp, PASSWORD, startMemberApp } from './member-app.ts';

const EMAIL = 'ada@example.com';

function guess({ ask }: MemberApp, email: string, password = 'wrong horse battery', headers = {}) {
  return ask('POST', '/session', { json: { email, password }, headers });
}

suite('Who guesses', () => {
  test('a password is slowed after five failures, the right one included, and the owner gets in within a minute', async (t) => {
    const running = await startMemberApp(t);
    await running.join(EMAIL, { password: PASSWORD });
    for (let n = 0; n < 5; n++) assert.equal((await guess(running, EMAIL)).status, 401);
    const slowed = await guess(running, 'ADA@example.com', PASSWORD);
    assert.deepEqual([slowed.status, slowed.headers['retry-after']], [429, '1']);
    assert.deepEqual(slowed.body, {
      error: 'too many attempts',
      trace_id: (slowed.body as { trace_id: string }).trace_id,
      message: 'too many attempts failed; try again in 1 second',
    });
    // Each guess at its earliest moment: the waits grow, and end at a minute.
    const waits: number[] = [];
    for (let n = 0; n < 8; n++) {
      const seconds = Number((await guess(running, EMAIL)).headers['retry-after']);
      waits.push(seconds);
      running.clock.now += seconds * 1_000;
      assert.equal((await guess(running, EMAIL)).status, 401);
    }
    assert.deepEqual(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    running.clock.now += 60_000;
    assert.equal((await guess(running, EMAIL, PASSWORD)).status, 200);
    assert.equal((await guess(running, EMAIL)).status, 401);
  });

  test('with many requests at one moment gets no more guesses than one after the other', async (t) => {
    const running = await startMemberApp(t);
    await running.join(EMAIL, { password: PASSWORD });
    const responses = await Promise.all(Array.from({ length: 15 }, () => guess(running, EMAIL)));
    assert.equal(responses.filter(({ status }) => status === 401).length, 5);
    assert.equal(responses.filter(({ status }) => status === 429).length, 10);
  });

  test('is slowed alike on an unknown e-mail', async (t) => {
    const running = await startMemberApp(t);
    for (let n = 0; n < 5; n++) assert.equal((await guess(running, 'nobody@example.com')).status, 401);
    assert.equal((await guess(running, 'nobody@example.com')).status, 429);
  });

  test('on many e-mails from one address is slowed, while people elsewhere sign in', async (t) => {
    const running = await startMemberApp(t, BEHIND_PROXY);
    await running.join(EMAIL, { password: PASSWORD });
    const attacker = { 'x-forwarded-for': '192.0.2.1, 203.0.113.7' };
    for (let n = 0; n < 20; n++) {
      assert.equal((await guess(running, `${n}@example.com`, PASSWORD, attacker)).status, 401);
    }
    assert.equal((await guess(running, EMAIL, PASSWORD, attacker)).status, 429);
    const pretending = { 'x-forwarded-for': '198.51.100.9, 203.0.113.7' };
    assert.equal((await guess(running, EMAIL, PASSWORD, pretending)).status, 429);
    const owner = { 'x-forwarded-for': '198.51.100.9' };
    assert.equal((await guess(running, EMAIL, PASSWORD, owner)).status, 200);
  });

  test('is slowed whatever a client claims to be, and no other client is, where no proxy is trusted', async (t) => {
    const running = await startMemberApp(t);
    await running.join(EMAIL, { password: PASSWORD });
    // To escape: another address with each guess. To frame someone else: the address of a victim.
    for (let n = 0; n < 20; n++) {
      const claim = { 'x-forwarded-for': `198.51.100.${n}` };
      assert.equal((await guess(running, `${n}@example.com`, PASSWORD, claim)).status, 401);
    }
    const another = { 'x-forwarded-for': '192.0.2.77' };
    assert.equal((await guess(running, 'x@example.com', PASSWORD, another)).status, 429);

    const behind = await startMemberApp(t, { ...BEHIND_PROXY, keyStore: running.keyStore });
    for (let n = 0; n < 20; n++) {
      const victim = { 'x-forwarded-for': `198.51.100.9, 203.0.113.7` };
      assert.equal((await guess(behind, `${n}@elsewhere.example`, PASSWORD, victim)).status, 401);
    }
    const itself = { 'x-forwarded-for': '198.51.100.10, 203.0.113.7' };
    assert.equal((await guess(behind, 'y@example.com', PASSWORD, itself)).status, 429);
    const victim = { 'x-forwarded-for': '198.51.100.9' };
    assert.equal((await guess(behind, EMAIL, PASSWORD, victim)).status, 200);
  });

  test('from many addresses of one IPv6 network is slowed as one', async (t) => {
    const running = await startMemberApp(t, BEHIND_PROXY);
    for (let n = 0; n < 20; n++) {
      const headers = { 'x-forwarded-for': `2001:db8::${n.toString(16)}:1` };
      assert.equal((await guess(running, `${n}@example.com`, PASSWORD, headers)).status, 401);
    }
    const same = { 'x-forwarded-for': '2001:0db8:0:0:ffff::1' };
    assert.equal((await guess(running, 'x@example.com', PASSWORD, same)).status, 429);
    const other = { 'x-forwarded-for': '2001:db8:0:1::1' };
    assert.equal((await guess(running, 'x@example.com', PASSWORD, other)).status, 401);
  });

  test('is slowed over another edge as well, since the counts are kept', async (t) => {
    const running = await startMemberApp(t);
    const other = await startMemberApp(t, { keyStore: running.keyStore });
    for (let n = 0; n < 5; n++) assert.equal((await guess(n % 2 === 0 ? running : other, EMAIL)).status, 401);
    assert.equal((await guess(running, EMAIL)).status, 429);
    assert.equal((await guess(other, EMAIL)).status, 429);
  });

  test('does not keep out who has a session, nor who sets a new password by a link', async (t) => {
    const running = await startMemberApp(t);
    const { cookie, member } = await running.join(EMAIL, { password: PASSWORD });
    for (let n = 0; n < 6; n++) await guess(running, EMAIL);
    assert.equal((await running.ask('GET', '/session', { cookie })).status, 200);
    const { invite } = await import('../../src/sign-in/invite.ts');
    const options = { accountId: member.accountId, kind: 'reset', email: EMAIL, member } as const;
    const reset = await invite(running.members, options, running.clock.now);
    const json = { token: reset?.token, password: 'staple staple' };
    assert.equal((await running.ask('POST', '/invitations/accept', { json })).status, 200);
    assert.equal((await running.ask('GET', '/session', { cookie })).status, 401);
    assert.equal((await guess(running, EMAIL, 'staple staple')).status, 200);
  });
});
