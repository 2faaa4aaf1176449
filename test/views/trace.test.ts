import assert from 'node:assert/strict';
import { test } from 'node:test';
import { storedTrace, type TracedRecord } from '../../src/views/trace.ts';

test('a resubmitted user whose request has expired is shown without a negative number of rejected users', () => {
  const resubmission: TracedRecord = {
    no: 7,
    receivedAt: 1,
    processedAt: 9,
    firstUserIndex: 1,
    usersAccepted: 1,
    usersRejected: -1,
    events: 1,
    duplicateOf: null,
    keyId: 'key_a',
    notes: null,
  };
  const trace = storedTrace('trace', [resubmission], {
    eventsOf: () => new Map([[1, { node: 5, events: 1 }]]),
    publicId: () => 'profile',
    profileId: () => 'profile',
    standingMerges: () => [],
  });
  assert.deepEqual(
    [trace?.usersAccepted, trace?.usersRejected, trace?.users.map(({ userIndex, status }) => [userIndex, status])],
    [1, 0, [[1, 'accepted']]],
  );
});
