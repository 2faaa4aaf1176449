/**
 * The form of API keys: what is made is recognised, what is damaged is not, and what leaked can be found.
 */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import * as fc from 'fast-check';
import {
  hashKey,
  isWellFormedKey,
  KEY_PATTERN,
  keyDisplay,
  makeKey,
  randomBase62,
  SCOPES,
} from '../../src/keys/format.ts';
import { ENVIRONMENTS, KEY_KINDS } from '../../src/model.ts';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

const anyKey = fc
  .tuple(fc.constantFrom(...KEY_KINDS), fc.constantFrom(...ENVIRONMENTS))
  .map(([kind, environment]) => makeKey(kind, environment));

test('the prefix of a key says what it is', () => {
  assert.match(makeKey('secret', 'production'), /^sk_prod_[0-9A-Za-z]{38}$/);
  assert.match(makeKey('secret', 'development'), /^sk_dev_[0-9A-Za-z]{38}$/);
  assert.match(makeKey('publishable', 'production'), /^pk_[0-9A-Za-z]{38}$/);
  assert.match(makeKey('publishable', 'development'), /^pk_[0-9A-Za-z]{38}$/);
});

test('every key that is made is well-formed', () => {
  fc.assert(fc.property(anyKey, (key) => isWellFormedKey(key)));
});

test('no key is well-formed any more once one character of it is changed', () => {
  fc.assert(
    fc.property(
      anyKey,
      fc.nat(),
      fc.constantFrom(...ALPHABET.split(''), '_', '-', ' ', '\n'),
      (key, position, character) => {
        const at = position % key.length;
        const changed = key.slice(0, at) + character + key.slice(at + 1);
        return isWellFormedKey(changed) === (changed === key);
      },
    ),
    { numRuns: 2_000 },
  );
});

test('no key is well-formed any more once two neighbours are swapped, or a character is lost or added', () => {
  fc.assert(
    fc.property(anyKey, fc.nat(), fc.constantFrom(...ALPHABET.split('')), (key, position, character) => {
      const at = position % (key.length - 1);
      const swapped = key.slice(0, at) + key.charAt(at + 1) + key.charAt(at) + key.slice(at + 2);
      const shorter = key.slice(0, at) + key.slice(at + 1);
      const longer = key.slice(0, at) + character + key.slice(at);
      return (swapped === key || !isWellFormedKey(swapped)) && !isWellFormedKey(shorter) && !isWellFormedKey(longer);
    }),
    { numRuns: 2_000 },
  );
});

test('text that is no key is not well-formed, whatever it is', () => {
  fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => !isWellFormedKey(text)));
  for (const text of ['', 'pk_', 'sk_dev_', `sk_test_${'0'.repeat(38)}`, `pk_${'0'.repeat(38)}`]) {
    assert.equal(isWellFormedKey(text), false, text);
  }
});

test('the checksum is the CRC32 of all that precedes, in six base62 characters', () => {
  // crc32("sk_dev_" + 32 × "0") and its base62 form were computed with Python's zlib, independently of this code.
  assert.equal(isWellFormedKey(`sk_dev_${'0'.repeat(32)}3FPJDU`), true);
  assert.equal(isWellFormedKey(`pk_${'z'.repeat(32)}2EAZXV`), true);
});

test('a key that leaked into other text is found, whatever stands around it', () => {
  const around = fc.string({ unit: 'grapheme' });
  fc.assert(
    fc.property(anyKey, around, around, (key, before, after) => {
      const [found] = KEY_PATTERN.exec(`${before} ${key}/${after}`) ?? [];
      return found === key;
    }),
  );
  const key = makeKey('secret', 'development');
  for (const text of [`"token":"${key}"`, `\\t${key}\\n`, `?key=%20${key}&x=1`, `https://${key}@host`, `x${key}`]) {
    assert.equal(KEY_PATTERN.exec(text)?.[0], key, text);
  }
});

test('the hash of a key is its SHA-256', () => {
  const key = makeKey('secret', 'production');
  assert.deepEqual(hashKey(key), createHash('sha256').update(key).digest());
});

test('what may be shown of a key is its prefix and its last four characters', () => {
  const key = makeKey('secret', 'production');
  assert.deepEqual(keyDisplay(key), { prefix: 'sk_prod_', lastFour: key.slice(-4) });
  assert.equal(keyDisplay(makeKey('publishable', 'production')).prefix, 'pk_');
});

test('publishable keys may write events and nothing else', () => {
  assert.deepEqual(SCOPES.publishable, ['ingest:write']);
  assert.deepEqual(SCOPES.secret, ['ingest:write', 'data:read', 'messages:send']);
});

test('random characters come from the whole alphabet, each about equally often', () => {
  const counts = new Map<string, number>();
  const perCharacter = 2_000;
  for (const character of randomBase62(ALPHABET.length * perCharacter)) {
    counts.set(character, (counts.get(character) ?? 0) + 1);
  }
  assert.deepEqual([...counts.keys()].toSorted(), ALPHABET.split('').toSorted());
  // The remainder of a random byte would favour 8 characters by a quarter; seven standard deviations are 16 percent.
  for (const [character, count] of counts) {
    assert.ok(Math.abs(count - perCharacter) < 0.16 * perCharacter, `${character} came ${count} times`);
  }
});
