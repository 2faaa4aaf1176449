/** Hashes of match keys: of one secret always the same, of different keys different. */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { suite, test } from 'node:test';
import type { NormalisedKey } from '../../src/model.ts';
import { identityFingerprint, type KeyHash, keyHashes } from '../../src/views/keyed-hash.ts';

const SECRET = Uint8Array.from({ length: 32 }, (_, n) => n);

function textOf({ hash, rest }: KeyHash): string {
  return `${hash} ${rest}`;
}

function user(value: string): NormalisedKey {
  return { type: 'user_id', value };
}

function anon(value: string): NormalisedKey {
  return { type: 'anon_id', value };
}

suite('The hash of a match key', () => {
  test('is the same for one secret, whatever was hashed before, and never changes', () => {
    const hashOf = keyHashes(SECRET);
    const known = textOf(hashOf(1, 0, 'ada'));
    hashOf(1, 0, 'x'.repeat(100_000));
    assert.equal(textOf(hashOf(1, 0, 'ada')), known);
    assert.equal(textOf(keyHashes(SECRET.slice())(1, 0, 'ada')), known);
    // As it lies in files: changing this makes every person in them unknown.
    assert.equal(known, '-137758914120459 556141970429742');
  });

  test('is another for another secret, tenant, type or value', () => {
    const hashOf = keyHashes(SECRET);
    const hashes = [keyHashes(SECRET.map((byte) => byte + 1))(1, 0, 'ada')];
    for (const tenant of [1, 2, 3, 65_536, 65_537, 131_072, 2 ** 32 - 1]) {
      for (let type = 0; type < 4; type++) {
        const values = ['ada', 'adb', 'aad', 'ad', '', '\0', '\0\0', 'ada\0', '\u{1f600}', '\ufffd', '\uffff'];
        for (const value of values) hashes.push(hashOf(tenant, type, value));
      }
    }
    assert.equal(new Set(hashes.map(textOf)).size, hashes.length);
  });

  test('is made of all characters of long values, however large they are', () => {
    const hashOf = keyHashes(SECRET);
    const long = '\uffff'.repeat(50_000);
    const hashes = [hashOf(1, 3, long)];
    for (const at of [0, 12, 13, 14, 25, 26, 511, 512, 25_000, 49_999]) {
      hashes.push(hashOf(1, 3, `${long.slice(0, at)}a${long.slice(at + 1)}`));
    }
    hashes.push(hashOf(1, 3, `${long}a`), hashOf(1, 3, long.slice(1)));
    assert.equal(new Set(hashes.map(textOf)).size, hashes.length);
  });

  test('of half a surrogate pair is that of the character that is stored for it', () => {
    const hashOf = keyHashes(SECRET);
    assert.deepEqual(hashOf(1, 0, 'a\ud83d'), hashOf(1, 0, 'a\ufffd'));
    assert.deepEqual(hashOf(1, 0, '\ude00a'), hashOf(1, 0, '\ufffda'));
    assert.notDeepEqual(hashOf(1, 0, '\ud83d\ude00'), hashOf(1, 0, '\ufffd\ufffd'));
  });

  test('of several keys depends on each of them, and on which characters are whose', () => {
    const hashOf = keyHashes(SECRET);
    const sets: NormalisedKey[][] = [
      [user('ab'), anon('cd')],
      [user('cb'), anon('ad')],
      [user('ab'), anon('ce')],
      [user('abanon_id2:cd')],
      [user('ab')],
      [user('ab'), { type: 'email', value: 'cd' }],
    ];
    const people = sets.flatMap((keys) => [identityFingerprint(hashOf, 1, keys), identityFingerprint(hashOf, 2, keys)]);
    assert.equal(new Set(people.map(textOf)).size, people.length);
    assert.deepEqual(identityFingerprint(keyHashes(SECRET), 1, [user('ab'), anon('cd')]), people[0]);
  });

  test('fits six and seven bytes, and is spread over them', () => {
    const hashOf = keyHashes(SECRET);
    let negative = 0;
    for (let n = 0; n < 2_000; n++) {
      const { hash, rest } = hashOf(1, 1, `person-${n}@example.com`);
      assert.ok(Number.isSafeInteger(hash) && hash >= -(2 ** 47) && hash < 2 ** 47);
      assert.ok(Number.isSafeInteger(rest) && rest >= 0 && rest < 2 ** 51);
      if (hash < 0) negative += 1;
    }
    assert.ok(negative > 800 && negative < 1_200, `${negative} of 2000 are below zero`);
  });

  test('is exact: the same sums with integers of any size', () => {
    const hashOf = keyHashes(SECRET);
    const { hash, rest } = hashOf(70_000, 2, '+4915112345678');
    // Each lane is below the prime; put together again they are what was cut.
    const whole = (BigInt(hash) + 2n ** 47n) * 2n ** 51n + BigInt(rest);
    const lanes = [whole >> 66n, (whole >> 33n) & (2n ** 33n - 1n), whole & (2n ** 33n - 1n)];
    assert.deepEqual(lanes, exactLanes(70_000, 2, '+4915112345678'));
  });
});

function exactLanes(tenant: number, type: number, value: string): bigint[] {
  const places = [tenant % 65_536, Math.floor(tenant / 65_536), type, ...Array.from(value, (c) => c.charCodeAt(0) + 1)];
  const bytes = createHash('shake256', { outputLength: places.length * 18 })
    .update(SECRET)
    .digest();
  const prime = 2n ** 33n - 9n;
  return [0, 1, 2].map((lane) =>
    places.reduce((sum, number, place) => {
      const factor = BigInt(bytes.readUIntLE((place * 3 + lane) * 6, 6)) % prime;
      return (sum + BigInt(number) * factor) % prime;
    }, 0n),
  );
}
