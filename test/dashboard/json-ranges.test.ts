/** Where the server's paths point to in a text, for the marks in the editor. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rangeAt, rangeOf } from '../../dashboard/src/json-ranges.ts';
import { markedParts } from '../../dashboard/src/mark-text.ts';

const TEXT = `{ "users" : [ {"identifiers":{"user_id":"a]}\\"","user_id":7}},
  {"events":[1,{"event_name":"x", "odd name":[true] , "é":null}], "users":[]} ] }`;

function found(path: string, text = TEXT): string | null {
  const range = rangeOf(text, path);
  return range === null ? null : text.slice(range.start, range.end);
}

test('a value is found by its path, with its name', () => {
  assert.equal(found('users[1].events[1].event_name'), '"event_name":"x"');
  assert.equal(found('users[1].events[0]'), '1');
  assert.equal(found('users[1].events[1]["odd name"][0]'), 'true');
  assert.equal(found('users[1].events[1].é'), '"é":null');
  assert.equal(found('users[1].users'), '"users":[]');
});

test('of a name that is there twice the last counts, and brackets in a text are text', () => {
  assert.equal(found('users[0].identifiers.user_id'), '"user_id":7');
});

test('where a part is missing, what is there of the path is found', () => {
  assert.equal(found('users[0].events'), '{"identifiers":{"user_id":"a]}\\"","user_id":7}}');
  assert.equal(found('users[9].events', '{"users":[]}'), '"users":[]');
  assert.equal(found('users[0]', '7'), '7');
  assert.equal(found('users', '  '), null);
});

test('a text that is not JSON ends no loop', () => {
  for (const text of ['{"users":[', '{"users":}', '[[[', '{"a" "b"}', '{"users":[,,]}', ':::'])
    rangeOf(text, 'users[1].a');
});

test('a line and column of the server are found, also behind characters of two places', () => {
  const text = '{\n  "😀": x\n}';
  const { start, end } = rangeAt(text, 2, 8);
  assert.equal(text.slice(start, end), 'x');
  assert.deepEqual(rangeAt('{', 1, 2), { start: 0, end: 1 });
});

test('marks that overlap are one, and all of the text stays', () => {
  const parts = markedParts('abcdef', [
    { start: 3, end: 5 },
    { start: 1, end: 4 },
  ]);
  assert.equal(parts.map(({ part }) => part).join(''), 'abcdef');
  assert.equal(
    parts
      .filter(({ isMarked }) => isMarked)
      .map(({ part }) => part)
      .join(''),
    'bcde',
  );
});
