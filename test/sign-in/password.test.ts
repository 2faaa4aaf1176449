/** How passwords are kept and checked. */

import assert from 'node:assert/strict';
import { argon2Sync } from 'node:crypto';
import { suite, test } from 'node:test';
import { Passwords, TooBusyError } from '../../src/sign-in/password.ts';

const PASSWORD = 'correct horse battery';

suite('A password', () => {
  test('is kept with a salt of its own and its parameters, and is right for both', async () => {
    const passwords = new Passwords();
    const [one, two] = await Promise.all([passwords.hash(PASSWORD), passwords.hash(PASSWORD)]);
    assert.notEqual(one, two);
    for (const stored of [one, two]) {
      assert.match(stored, /^\$argon2id\$v=19\$m=19456,t=2,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/);
      assert.equal(passwords.isOutdated(stored), false);
      assert.equal(await passwords.verify(PASSWORD, stored), true);
      assert.equal(await passwords.verify(`${PASSWORD} `, stored), false);
      assert.equal(await passwords.verify('', stored), false);
    }
  });

  test('is kept as what argon2id gives, salt and hash in base64 without padding', async () => {
    const [, , , , salt = '', hash = ''] = (await new Passwords().hash('\u212bngstro\u0308m')).split('$');
    const nonce = Buffer.from(salt, 'base64');
    // Letters that look alike are one password.
    const parameters = {
      message: '\u00c5ngstr\u00f6m',
      nonce,
      memory: 19_456,
      passes: 2,
      parallelism: 1,
      tagLength: 32,
    };
    assert.equal(argon2Sync('argon2id', parameters).toString('base64').replace('=', ''), hash);
  });

  test('that was kept with other parameters of argon2id is still right, and outdated', async () => {
    const nonce = Buffer.from('an older salt...');
    const parameters = { message: PASSWORD, nonce, memory: 64, passes: 1, parallelism: 2, tagLength: 24 };
    const texts = [nonce, argon2Sync('argon2id', parameters)].map((bytes) =>
      bytes.toString('base64').replace(/=+$/, ''),
    );
    const stored = `$argon2id$v=19$m=64,t=1,p=2$${texts.join('$')}`;
    const passwords = new Passwords();
    assert.equal(await passwords.verify(PASSWORD, stored), true);
    assert.equal(await passwords.verify('another', stored), false);
    assert.equal(passwords.isOutdated(stored), true);
  });

  test('of an unknown member is never right', async () => {
    assert.equal(await new Passwords().verify(PASSWORD, undefined), false);
  });

  test('stored in an unknown form is a fault, not a wrong password', async () => {
    for (const stored of [
      'md5$x',
      'scrypt$1024$8$1$c2FsdA$aGFzaA',
      '',
      '$argon2id$v=19$m=99999999,t=2,p=1$c2FsdA$aGFzaA',
      '$argon2i$v=19$m=64,t=1,p=1$c2FsdA$aGFzaA',
    ]) {
      await assert.rejects(new Passwords().verify(PASSWORD, stored), /not in the form/);
    }
  });

  test('is checked as one of a few at once; beyond those that may wait, it is refused', async () => {
    const passwords = new Passwords();
    const results = await Promise.allSettled(Array.from({ length: 25 }, () => passwords.verify(PASSWORD, undefined)));
    const refused = results.filter((result) => result.status === 'rejected');
    assert.equal(refused.length, 5);
    assert.ok(refused.every(({ reason }) => reason instanceof TooBusyError));
    assert.equal(passwords.isFull, false);
    assert.equal(await passwords.verify(PASSWORD, undefined), false);
  });

  test('is checked one at a time where several edges share the threads of the process', async () => {
    const passwords = new Passwords(2);
    const results = await Promise.allSettled(Array.from({ length: 25 }, () => passwords.verify(PASSWORD, undefined)));
    assert.equal(results.filter((result) => result.status === 'rejected').length, 6);
  });
});
