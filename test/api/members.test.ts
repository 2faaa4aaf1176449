/** Invitations and members: who may join, who may be removed, once each, and never across accounts. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { DAY_MS } from '../../src/model.ts';
import { type MemberApp, NOW, PASSWORD, startMemberApp } from './member-app.ts';

const EMAIL = 'ada@example.com';

interface Team {
  readonly members: { id: string; email: string; is_you: boolean; created_at: string; last_signed_in_at: string }[];
  readonly invitations: { id: string; email: string; created_at: string; expires_at: string }[];
}

async function teamOf({ ask }: MemberApp, cookie: string): Promise<Team> {
  const { status, body } = await ask('GET', '/members', { cookie });
  assert.equal(status, 200);
  return body as Team;
}

function accept({ ask }: MemberApp, json: object, cookie: string | null = null) {
  return ask('POST', '/invitations/accept', { json, cookie });
}

suite('An invitation', () => {
  test('tells its holder what it is for, and makes a member who is signed in', async (t) => {
    const running = await startMemberApp(t);
    const token = await running.invitationFor({ kind: 'first' });
    const look = await running.ask('POST', '/invitations/look', { json: { token } });
    assert.deepEqual(look.body, {
      kind: 'first',
      account_name: 'own',
      email: null,
      expires_at: new Date(NOW + DAY_MS).toISOString(),
    });
    const joined = await accept(running, { token, email: ` ${EMAIL} `, password: PASSWORD });
    assert.equal(joined.status, 200, joined.text);
    const { member, account } = joined.body as { member: { email: string }; account: { name: string } };
    assert.deepEqual([member.email, account.name], [EMAIL, 'own']);
    assert.equal((await running.ask('GET', '/session', { cookie: joined.cookie ?? '' })).status, 200);
    const signedIn = await running.ask('POST', '/session', { json: { email: EMAIL, password: PASSWORD } });
    assert.equal(signedIn.status, 200);
  });

  test('of the first start makes one owner, however many accept it at the same moment', async (t) => {
    const running = await startMemberApp(t);
    const token = await running.invitationFor({ kind: 'first' });
    const responses = await Promise.all(
      Array.from({ length: 20 }, (_, n) => accept(running, { token, email: `${n}@x.example`, password: PASSWORD })),
    );
    const statuses = responses.map(({ status }) => status);
    assert.equal(statuses.filter((status) => status === 200).length, 1, statuses.join());
    assert.ok(
      statuses.every((status) => [200, 404, 503].includes(status)),
      statuses.join(),
    );
    const winner = responses.find(({ status }) => status === 200);
    const { members } = await teamOf(running, winner?.cookie ?? '');
    assert.equal(members.length, 1);
    assert.equal((await accept(running, { token, email: 'late@x.example', password: PASSWORD })).status, 404);
    assert.deepEqual(running.errors, []);
  });

  test('is gone, in the same words, when it was used, withdrawn, has expired, never was or is no token', async (t) => {
    const running = await startMemberApp(t);
    const { members, clock } = running;
    const [used, withdrawn, expired] = [
      await running.invitationFor({ email: 'used@x.example' }),
      await running.invitationFor({ email: 'withdrawn@x.example' }),
      await running.invitationFor({ email: 'expired@x.example' }),
    ];
    const { cookie = '' } = await accept(running, { token: used, password: PASSWORD });
    const { invitations } = await teamOf(running, cookie);
    const open = invitations.find(({ email }) => email === 'withdrawn@x.example');
    assert.equal((await running.ask('DELETE', `/invitations/${open?.id}`, { cookie })).status, 204);
    clock.now = NOW + 7 * DAY_MS;
    const words = new Set<string>();
    for (const token of [used, withdrawn, expired, 'A'.repeat(43), '', "' OR 1=1 --"]) {
      for (const path of ['/invitations/look', '/invitations/accept']) {
        const json = path.endsWith('look') ? { token } : { token, email: 'x@x.example', password: PASSWORD };
        const { status, body } = await running.ask('POST', path, { json });
        assert.equal(status, 404);
        words.add((body as { message: string }).message);
      }
    }
    assert.deepEqual([...words], ['this link was used, has expired or was withdrawn; ask for a new one']);
    assert.equal(await members.findMember('x@x.example'), undefined);
  });

  test('names what is wrong with an e-mail or a password, and can be used after that', async (t) => {
    const running = await startMemberApp(t);
    await running.join('Taken@example.com');
    const token = await running.invitationFor();
    const cases: [object, string][] = [
      [{ password: PASSWORD }, 'email is missing'],
      [{ password: PASSWORD, email: 'ada' }, 'email is not an e-mail address, such as ada@example.com'],
      [{ password: PASSWORD, email: 'a b@example.com' }, 'email is not an e-mail address, such as ada@example.com'],
      [{ password: PASSWORD, email: `${'x'.repeat(250)}@x.example` }, 'email must have at most 254 characters'],
      [{ password: PASSWORD, email: 'a\u0000@x.example' }, 'email contains a character that cannot be stored'],
      [{ password: PASSWORD, email: 'taken@EXAMPLE.com' }, 'email is that of a member already'],
      [{ password: 'too short', email: EMAIL }, 'password must have at least 10 characters'],
      [{ password: '🙂'.repeat(9), email: EMAIL }, 'password must have at least 10 characters'],
      [{ password: 'x'.repeat(201), email: EMAIL }, 'password must have at most 200 characters'],
      [{ password: 'ten letters\ud800', email: EMAIL }, 'password contains a character that cannot be stored'],
      [{ email: EMAIL }, 'password is required'],
    ];
    for (const [fields, message] of cases) {
      const { status, body } = await accept(running, { token, ...fields });
      assert.deepEqual([status, (body as { message: string }).message], [400, message]);
    }
    assert.equal((await accept(running, { token, email: EMAIL, password: '🙂'.repeat(10) })).status, 200);
  });

  test('for an e-mail is for that person alone, who need not type it again', async (t) => {
    const running = await startMemberApp(t);
    const token = await running.invitationFor({ email: EMAIL });
    const other = await accept(running, { token, email: 'eve@example.com', password: PASSWORD });
    assert.equal(other.status, 400);
    const joined = await accept(running, { token, email: ' ', password: PASSWORD });
    assert.equal((joined.body as { member: { email: string } }).member.email, EMAIL);
  });

  test('ends the session that the browser had before', async (t) => {
    const running = await startMemberApp(t);
    const { cookie } = await running.join('eve@example.com');
    const token = await running.invitationFor({ email: EMAIL });
    const joined = await accept(running, { token, password: PASSWORD }, cookie);
    assert.ok(joined.cookie !== undefined && joined.cookie !== cookie);
    assert.equal((await running.ask('GET', '/session', { cookie })).status, 401);
  });
});

suite('Members', () => {
  test('are listed with those who were invited', async (t) => {
    const running = await startMemberApp(t);
    const { member, cookie } = await running.join(EMAIL);
    running.clock.now = NOW + 1_000;
    await running.join('grace@example.com');
    const made = await running.ask('POST', '/invitations', { cookie, json: { email: ' new@example.com ' } });
    assert.equal(made.status, 201);
    const invitation = made.body as { id: string; email: string; link: string; expires_at: string };
    const expires = new Date(NOW + 1_000 + 7 * DAY_MS).toISOString();
    assert.deepEqual([invitation.email, invitation.expires_at], ['new@example.com', expires]);
    const [, token] = new RegExp(`^${running.origin}/dashboard/welcome#([\\w-]{43})$`).exec(invitation.link) ?? [];
    assert.ok(token);
    const team = await teamOf(running, cookie);
    assert.deepEqual(team.members[0], {
      id: member.id,
      email: EMAIL,
      created_at: new Date(NOW).toISOString(),
      last_signed_in_at: new Date(NOW).toISOString(),
      is_you: true,
    });
    assert.deepEqual(
      team.members.map(({ email, is_you: isYou }) => [email, isYou]),
      [
        [EMAIL, true],
        ['grace@example.com', false],
      ],
    );
    const { id, email } = invitation;
    const createdAt = new Date(NOW + 1_000).toISOString();
    assert.deepEqual(team.invitations, [{ id, email, created_at: createdAt, expires_at: expires }]);
    assert.equal((await accept(running, { token, password: PASSWORD })).status, 200);
    assert.deepEqual((await teamOf(running, cookie)).invitations, []);
  });

  test('get links to where people reach the server', async (t) => {
    const running = await startMemberApp(t, { publicUrl: 'https://sluice.example' });
    const { cookie } = await running.join(EMAIL);
    const { body } = await running.ask('POST', '/invitations', { cookie, json: { email: 'b@example.com' } });
    assert.ok((body as { link: string }).link.startsWith('https://sluice.example/dashboard/welcome#'));
  });

  test('cannot invite who is a member of theirs already, nor what is no e-mail, nor without end', async (t) => {
    const running = await startMemberApp(t);
    const { cookie } = await running.join(EMAIL);
    const inviting = (email: unknown) => running.ask('POST', '/invitations', { cookie, json: { email } });
    const again = await inviting('ADA@example.com');
    assert.equal(again.status, 409);
    assert.deepEqual(again.body, {
      error: 'conflict',
      trace_id: (again.body as { trace_id: string }).trace_id,
      message: 'this e-mail address already belongs to a member of this account',
    });
    for (const email of ['', 'nobody', 7, null]) assert.equal((await inviting(email)).status, 400);
    const statuses = new Set<number>();
    for (let n = 0; n < 101; n++) statuses.add((await inviting(`${n}@x.example`)).status);
    assert.deepEqual([...statuses], [201, 409]);
  });

  test('remove another, whose sessions end; themselves they cannot', async (t) => {
    const running = await startMemberApp(t);
    const owner = await running.join(EMAIL);
    const other = await running.join('b@example.com');
    const { ask } = running;
    assert.equal((await ask('DELETE', `/members/${owner.member.id}`, { cookie: owner.cookie })).status, 409);
    assert.equal((await ask('DELETE', `/members/${other.member.id}`, { cookie: owner.cookie })).status, 204);
    assert.equal((await ask('GET', '/session', { cookie: other.cookie })).status, 401);
    assert.equal((await ask('DELETE', `/members/${other.member.id}`, { cookie: owner.cookie })).status, 404);
    assert.equal((await ask('GET', '/session', { cookie: owner.cookie })).status, 200);
  });

  test('of one account see, invite to, withdraw and remove nothing of another', async (t) => {
    const running = await startMemberApp(t);
    const { ask } = running;
    const own = await running.join(EMAIL);
    const other = await running.join('b@example.com', { account: 'other' });
    await ask('POST', '/invitations', { cookie: other.cookie, json: { email: 'c@example.com' } });
    const [theirs] = (await teamOf(running, other.cookie)).invitations;
    const team = await teamOf(running, own.cookie);
    assert.deepEqual([team.members.length, team.invitations], [1, []]);
    for (const path of [`/members/${other.member.id}`, `/invitations/${theirs?.id}`, '/members/%00', '/members/x']) {
      assert.equal((await ask('DELETE', path, { cookie: own.cookie })).status, 404);
    }
    assert.equal((await ask('GET', '/session', { cookie: other.cookie })).status, 200);
    assert.equal((await teamOf(running, other.cookie)).invitations.length, 1);
    const invited = await ask('POST', '/invitations', { cookie: own.cookie, json: { email: 'B@example.com' } });
    // As `sluice invite` says it, without the name of the other account.
    const message = 'email is that of a member of another account, and a person can be a member of one account only';
    assert.deepEqual([invited.status, (invited.body as { message: string }).message], [409, message]);
    assert.deepEqual((await teamOf(running, own.cookie)).invitations, []);
  });
});
