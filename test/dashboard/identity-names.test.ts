/** What a profile of an identity graph is called by in words. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { nodeNames } from '../../dashboard/src/identity-names.ts';
import type { IdentifierType } from '../../dashboard/src/api-constants.ts';
import type { LinkedIdentifier } from '../../dashboard/src/api-types.ts';

function link(node: string, type: IdentifierType, value: string, second: number): LinkedIdentifier {
  const first_seen = new Date(Date.UTC(2026, 10, 15, 9, 0, second)).toISOString();
  return { type, value, node, first_trace_id: `trace-${second}`, userIndex: 0, first_seen };
}

suite('Names of profiles in an identity graph', () => {
  test('each is called by the identifier that says most, the oldest of its type, in whatever order they come', () => {
    const identifiers = [
      link('one', 'anon_id', 'device', 1),
      link('one', 'email', 'new@example.com', 4),
      link('one', 'email', 'old@example.com', 2),
      link('other', 'anon_id', 'phone', 3),
      link('other', 'user_id', 'carla', 5),
    ];
    for (const given of [identifiers, identifiers.toReversed()]) {
      const names = nodeNames({ identifiers: given });
      assert.equal(names.get('one')?.value, 'old@example.com');
      assert.equal(names.get('other')?.value, 'carla');
      assert.equal(names.size, 2);
    }
  });

  test('one without identifiers has no name', () => {
    assert.equal(nodeNames({ identifiers: [] }).get('one'), undefined);
  });
});
