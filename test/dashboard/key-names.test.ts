import assert from 'node:assert/strict';
import test from 'node:test';
import { sameNames } from '../../dashboard/src/key-names.ts';

const KEY = { kind: 'secret', environment: 'development', state: 'active' } as const;

test('active keys of one name, kind and environment say which is the newest; others say nothing', () => {
  const words = sameNames([
    { ...KEY, id: 'b', name: 'shop', created_at: '2026-11-02T00:00:00.000Z' },
    { ...KEY, id: 'c', name: 'shop', created_at: '2026-11-03T00:00:00.000Z' },
    { ...KEY, id: 'a', name: 'shop', created_at: '2026-11-01T00:00:00.000Z' },
    { ...KEY, id: 'old', name: 'shop', created_at: '2026-10-01T00:00:00.000Z', state: 'revoked' },
    { ...KEY, id: 'live', name: 'shop', created_at: '2026-11-01T00:00:00.000Z', environment: 'production' },
    { ...KEY, id: 'alone', name: 'other', created_at: '2026-11-01T00:00:00.000Z' },
  ]);
  assert.deepEqual(Object.fromEntries(words), {
    c: 'newest of 3 with this name',
    b: 'older one of 3 with this name',
    a: 'oldest of 3 with this name',
  });
});
