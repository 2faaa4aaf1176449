/** What is kept of an error that a record causes: where it happened, and nothing that a client sent. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { failureOf } from '../../src/processor/failures.ts';

const CANARY = 'ada@example.com';

function thrownBy(work: () => unknown): unknown {
  try {
    work();
  } catch (error) {
    return error;
  }
  return assert.fail('nothing was thrown');
}

test('Errors that quote what a client sent are described by their place', () => {
  for (const [error, cause] of [
    [thrownBy(() => JSON.parse(CANARY)), /^SyntaxError: at JSON\.parse/],
    [thrownBy(() => BigInt(CANARY)), /^SyntaxError: at BigInt/],
    [thrownBy(() => 'x' in (CANARY as unknown as object)), /^TypeError: at .*test\/processor\/failures\.test\.ts:\d+/],
    [thrownBy(() => Buffer.alloc(CANARY as unknown as number)), /^TypeError: at /],
    [thrownBy(() => JSON.parse(`"\n    at ${CANARY}"`)), /^SyntaxError: at JSON\.parse/],
    [CANARY, /^a string was thrown$/],
  ] as const) {
    const failure = failureOf(error);
    assert.match(failure.cause, cause);
    assert.doesNotMatch(JSON.stringify(failure), /ada@|file:/);
  }
});

test('Our own errors keep their words', () => {
  const { cause, stack } = failureOf(new Error('the body has 1 users where the edge counted 5'));
  assert.equal(cause, 'Error: the body has 1 users where the edge counted 5');
  assert.match(stack, /^at .*failures\.test\.ts/);
});
