/** The reasons why a server is not ready, as an operator reads them. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ReadinessParts, readinessOf } from '../../src/edge/readiness.ts';

const STATUS: ReadinessParts['status'] = {
  isShuttingDown: () => false,
  isDraining: () => false,
  isDiskLow: () => false,
  isOtherDatabase: () => false,
  replacedFiles: () => [],
  isBacklogFull: () => false,
};

function reasons(problems: { readonly ofStart?: string; readonly ofLog?: string }): readonly string[] {
  return readinessOf({
    role: 'edge',
    status: STATUS,
    log: { append: async () => undefined, problem: () => problems.ofLog ?? null, close: async () => undefined },
    storeProblem: () => null,
    databaseProblem: () => problems.ofStart ?? null,
    keysProblem: () => null,
  }).reasons;
}

test('of a Kafka that cannot be reached, the reason names the broker and what to do', () => {
  assert.deepEqual(
    reasons({
      ofStart: 'Kafka cannot be used yet: Kafka cannot be reached: Connection to b:9092 failed: connect ECONNREFUSED',
    }),
    ['Kafka cannot be used yet: the broker b:9092 cannot be reached: is it running, and is LOG_URL right?'],
  );
  assert.deepEqual(reasons({ ofLog: 'Kafka does not accept data: the broker b:9092 does not respond' }), [
    'the log cannot be written: Kafka does not accept data: the broker b:9092 cannot be reached: is it running, and is LOG_URL right?',
  ]);
});

test('a hint about the cause is kept, and so is a reason that is a sentence already', () => {
  assert.deepEqual(
    reasons({
      ofStart: 'Kafka cannot be used yet: Kafka cannot be reached: Connection closed (do tls and sasl fit this port?)',
    }),
    ['Kafka cannot be used yet: a broker cannot be reached: do tls and sasl fit this port?'],
  );
  const inSync = 'Kafka does not accept data: partition 0 has 1 of 2 required in-sync replicas';
  assert.deepEqual(reasons({ ofLog: inSync }), [`the log cannot be written: ${inSync}`]);
});
