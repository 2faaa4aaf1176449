/** Lines about an outage: one at its begin, one a minute, one at its end. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OutageLog, REMINDER_MS } from '../../src/telemetry/logger.ts';
import { RetryLoop } from '../../src/processor/retry-loop.ts';
import { StoreUnavailableError } from '../../src/store-writer.ts';
import { rememberingLogger } from '../processor/processing.ts';

const WORDS = { failing: 'it cannot be reached', working: 'it is back' };
const AWAY = new StoreUnavailableError('PostgreSQL cannot be reached: ECONNREFUSED', {
  cause: new Error('ECONNREFUSED'),
});

test('an outage is logged once, again a minute later with the number of failures, and when it ends', (t) => {
  const { logger, lines } = rememberingLogger();
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const outage = new OutageLog(logger, WORDS);
  outage.worked();
  for (now = 0; now < 2 * REMINDER_MS; now += 1_000) outage.failed(AWAY);
  outage.worked();
  outage.worked();
  assert.equal(lines.length, 3, lines.join('\n'));
  assert.match(lines[0] ?? '', /PostgreSQL cannot be reached: ECONNREFUSED"/);
  assert.doesNotMatch(lines.join('\n'), /stack|REFUSED: ECONN/);
  assert.match(lines[1] ?? '', /"failures":60/);
  assert.match(lines[2] ?? '', /it is back/);
});

test('the next outage is logged at once', () => {
  const { logger, lines } = rememberingLogger();
  const outage = new OutageLog(logger, WORDS);
  for (let n = 0; n < 3; n++) {
    outage.failed(AWAY);
    outage.worked();
  }
  assert.equal(lines.length, 6);
});

test('where some of it works while some fails, the outage ends once nothing has failed for a while', (t) => {
  const { logger, lines } = rememberingLogger();
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const outage = new OutageLog(logger, WORDS, 2_000);
  for (now = 0; now < REMINDER_MS - 1; now += 1_000) {
    outage.failed(AWAY);
    outage.worked();
  }
  assert.equal(lines.length, 1, lines.join('\n'));
  now += 2_000;
  outage.worked();
  assert.equal(lines.length, 2);
  assert.match(lines[1] ?? '', /it is back/);
});

test('a processor that waits says so for each reason, and again a minute later', async () => {
  const { logger, lines } = rememberingLogger();
  let now = 0;
  let retries = 0;
  const patience = new RetryLoop(
    logger,
    () => (retries += 1),
    () => now,
  );
  const fail = (): Promise<boolean> => patience.guard('process', () => Promise.reject(AWAY));
  await fail();
  await fail();
  assert.equal(lines.length, 1);
  now += REMINDER_MS;
  await fail();
  await fail();
  assert.equal(lines.length, 2);
  assert.equal(retries, 4);
});
