import assert from 'node:assert/strict';
import test from 'node:test';
import { ExactNumber, parseExactly } from '../../dashboard/src/exact-json.ts';

test('a number that a double cannot hold keeps its digits, shown and serialised', () => {
  const parsed = parseExactly('{"points":12345678901234567890,"big":1e400,"small":1e-400}') as Record<string, unknown>;
  assert.ok(parsed['points'] instanceof ExactNumber);
  assert.equal(String(parsed['points']), '12345678901234567890');
  assert.equal(JSON.stringify(parsed), '{"points":12345678901234567890,"big":1e400,"small":1e-400}');
});

test('a number that a double holds stays a number, however it was written', () => {
  const text = '[1.10,1e3,0.000,123456789012345,0.1234567890123456,"12345678901234567890"]';
  assert.deepEqual(parseExactly(text), [1.1, 1000, 0, 123456789012345, 0.1234567890123456, '12345678901234567890']);
});

test('the revenue of an event is always a number, and the same name among its properties is not changed', () => {
  const text = '{"trace_id":"t","revenue":12345678901234567890,"properties":{"revenue":12345678901234567890}}';
  const event = parseExactly(text) as { revenue: unknown; properties: { revenue: unknown } };
  assert.equal(typeof event.revenue, 'number');
  assert.equal(String(event.properties.revenue), '12345678901234567890');
});

test('names such as __proto__ are data beside a long number too', () => {
  const parsed = parseExactly('{"__proto__":{"points":12345678901234567890}}') as object;
  assert.deepEqual(Object.keys(parsed), ['__proto__']);
});
