/** What is kept of rejected users. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keptRejections } from '../../src/views/kept-rejections.ts';

test('a payload that must not be kept is replaced by the reason, and cannot be taken for what was sent', () => {
  const sent = '{"identifiers":{},"events":[{"event_name":"seen"}]}';
  const [whole, none] = keptRejections([
    { userIndex: 0, message: 'no', payload: sent },
    { userIndex: 1, message: 'no', payload: null },
  ]);
  assert.deepEqual([whole?.payload, whole?.isCut], [sent, false]);
  assert.deepEqual([none?.isCut, none?.eventNames], [true, '']);
  assert.match(none?.payload ?? '', /^not kept: a person was erased/);
});
