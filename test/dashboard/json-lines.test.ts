import assert from 'node:assert/strict';
import test from 'node:test';
import { ExactNumber } from '../../dashboard/src/exact-json.ts';
import { jsonLines, jsonSource, markedPath } from '../../dashboard/src/ui/json-lines.ts';

const USER = { identifiers: { email: 42 }, events: [{ event_name: 'a', timestamp: 'yesterday' }, {}] };

function textOf(value: unknown): string {
  return jsonLines(value)
    .map(({ depth, name, text, isFollowed }) => {
      const words = name === null ? text : `${JSON.stringify(name)}: ${text}`;
      return '  '.repeat(depth) + words + (isFollowed ? ',' : '');
    })
    .join('\n');
}

test('the lines are the JSON, whatever is in it', () => {
  const value = { text: '<b>"\n', list: [1, null, true, [], {}], nested: { deep: { er: -0.5 } } };
  assert.equal(textOf(value), JSON.stringify(value, null, 2));
  assert.equal(textOf('alone'), '"alone"');
  assert.equal(textOf(new ExactNumber('12345678901234567890')), '12345678901234567890');
  assert.equal(
    jsonSource({ points: new ExactNumber('12345678901234567890') }),
    '{\n  "points": 12345678901234567890\n}',
  );
});

test('a path marks its place', () => {
  const lines = jsonLines(USER);
  assert.equal(markedPath(lines, 'events[0].timestamp'), 'events[0].timestamp');
  assert.equal(markedPath(lines, 'identifiers.email'), 'identifiers.email');
});

test('a path that is not there marks the nearest thing around it, and nothing when there is none', () => {
  const lines = jsonLines(USER);
  assert.equal(markedPath(lines, 'events[1].event_name'), 'events[1]');
  assert.equal(markedPath(lines, 'events[7].properties.list[3]'), 'events');
  assert.equal(markedPath(lines, 'user_properties.plan'), null);
  assert.equal(markedPath(lines, undefined), null);
});
