/** How passwords are kept and checked. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { Passwords, TooBusyError } from '../../src/sign-in/password.ts';

const PASSWORD = 'correct horse battery';

suite('A password', () => {
  test('is kept with a salt of its own and its parameters, and is right for both', async () => {
    const passwords = new Passwords();
    const [one, two] = await Promise.all([passwords.hash(PASSWORD), passwords.hash(PASSWORD)]);
    assert.notEqual(one, two);
    for (const stored of [one, two]) {
      assert.match(stored, /^scrypt\$32768\$8\$1\$[\w-]{22}\$[\w-]{43}$/);
      assert.equal(await passwords.verify(PASSWORD, stored), true);
      assert.equal(await passwords.verify(`${PASSWORD} `, stored), false);
      assert.equal(await passwords.verify('', stored), false);
    }
  });

  test('that was kept with lighter parameters is still right', async () => {
    const { scryptSync } = await import('node:crypto');
    const salt = Buffer.from('an older salt...');
    const hash = scryptSync(PASSWORD, salt, 32, { N: 1_024, r: 8, p: 1 });
    const stored = `scrypt$1024$8$1$${salt.toString('base64url')}$${hash.toString('base64url')}`;
    assert.equal(await new Passwords().verify(PASSWORD, stored), true);
    assert.equal(await new Passwords().verify('another', stored), false);
  });

  test('of nobody is never right', async () => {
    assert.equal(await new Passwords().verify(PASSWORD, undefined), false);
  });

  test('kept in a form that nobody knows is a fault, not a wrong password', async () => {
    await assert.rejects(new Passwords().verify(PASSWORD, 'md5$x'), /not in the form/);
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
