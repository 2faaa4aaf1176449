import assert from 'node:assert/strict';
import test from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { AT_ONCE_MAX, PersonNames } from '../../dashboard/src/pages/person-names.ts';
import { eventually } from '../server.ts';

const RETRY_MS = 5;
const nothing = (): void => {};

/** Questions that the test answers. */
function questions() {
  const asked: { readonly key: string; readonly answer: PromiseWithResolvers<string | null> }[] = [];
  const ask = (key: string): Promise<string | null> => {
    const answer = Promise.withResolvers<string | null>();
    asked.push({ key, answer });
    return answer.promise;
  };
  return { asked, ask, keys: () => asked.map(({ key }) => key) };
}

test('a few are asked for at once, the newest of those that wait first, and each once', async () => {
  const { asked, ask, keys } = questions();
  const names = new PersonNames(ask, RETRY_MS);
  const all = ['a', 'b', 'c', 'd', 'e'];
  for (const key of [...all, ...all]) names.listen(key, nothing);
  assert.equal(AT_ONCE_MAX, 3);
  assert.deepEqual(keys(), ['a', 'b', 'c']);
  asked[1]?.answer.resolve('Grace');
  await eventually('the next is asked for', () => keys().length === 4);
  assert.deepEqual(keys(), ['a', 'b', 'c', 'e']);
  assert.equal(names.get('b'), 'Grace');
  assert.equal(names.get('a'), undefined);
});

test('what fails is not taken for an answer, and is asked for again', async () => {
  const { asked, ask, keys } = questions();
  const names = new PersonNames(ask, RETRY_MS);
  let told = 0;
  const stop = names.listen('a', () => {
    told += 1;
  });
  asked[0]?.answer.reject(new Error('the server is away'));
  await eventually('it is asked for again', () => keys().length === 2);
  assert.equal(names.get('a'), undefined);
  asked[1]?.answer.resolve('Ada');
  await eventually('it is known', () => names.get('a') === 'Ada');
  assert.equal(told, 1);
  stop();
});

test('when nobody listens any more, nothing is asked for again', async () => {
  const { asked, ask, keys } = questions();
  const names = new PersonNames(ask, RETRY_MS);
  const stop = names.listen('a', nothing);
  asked[0]?.answer.reject(new Error('signed out'));
  stop();
  await setImmediate();
  names.listen('b', nothing);
  await eventually('another is asked for', () => keys().length === 2);
  asked[1]?.answer.resolve(null);
  await eventually('it is known to have no name', () => names.get('b') === null);
  assert.deepEqual(keys(), ['a', 'b']);
});
