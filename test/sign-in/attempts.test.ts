/** The rule that slows guessing, and what it does to a person who guesses. The clock is the test's own. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { AttemptCount } from '../../src/members.ts';
import { DAY_MS, MINUTE_MS } from '../../src/model.ts';
import {
  ADDRESS_DELAYS,
  addressSubject,
  EMAIL_DELAYS,
  emailSubject,
  decideAttempt,
  type Subject,
  delayAfterMs,
} from '../../src/sign-in/attempts.ts';

const NOW = Date.UTC(2026, 10, 15, 12);

/** Guesses as often as it is allowed to for so long, and tells how often that was. */
function guessesWithin(subject: Subject, durationMs: number): number {
  let count: AttemptCount = { failures: 0, lastAt: 0 };
  let guesses = 0;
  for (let now = NOW; now < NOW + durationMs; ) {
    const { waitMs, failures } = decideAttempt([subject], [count], now);
    if (waitMs > 0) {
      now += waitMs;
    } else {
      count = { failures: failures[0] ?? 0, lastAt: now };
      guesses++;
    }
  }
  return guesses;
}

suite('Attempts', () => {
  test('wait longer and longer after the free ones, up to a limit', () => {
    const waits = Array.from({ length: 14 }, (_, failures) => delayAfterMs(EMAIL_DELAYS, failures) / 1_000);
    assert.deepEqual(waits, [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert.equal(delayAfterMs(EMAIL_DELAYS, 1e9), MINUTE_MS);
    assert.equal(delayAfterMs(ADDRESS_DELAYS, 19), 0);
    assert.equal(delayAfterMs(ADDRESS_DELAYS, 1e9), 15 * MINUTE_MS);
  });

  test('on one e-mail, tried without a pause for a day, are about one a minute', () => {
    const guesses = guessesWithin(emailSubject('ada@example.com'), DAY_MS);
    assert.ok(guesses > 1_400 && guesses < 1_460, `${guesses}`);
  });

  test('from one address, on e-mails of all kinds, are about four an hour', () => {
    const guesses = guessesWithin(addressSubject('203.0.113.7'), DAY_MS);
    assert.ok(guesses > 90 && guesses < 140, `${guesses}`);
  });

  test('wait for the longest of the waits, and are counted for all subjects', () => {
    const subjects = [emailSubject('a@example.com'), addressSubject('203.0.113.7')];
    const counts = [
      { failures: 5, lastAt: NOW },
      { failures: 24, lastAt: NOW },
    ];
    assert.deepEqual(decideAttempt(subjects, counts, NOW), { waitMs: 16_000, failures: [6, 25] });
    assert.deepEqual(decideAttempt(subjects, counts, NOW + 15_999).waitMs, 1);
    assert.deepEqual(decideAttempt(subjects, counts, NOW + 16_000).waitMs, 0);
  });

  test('are forgotten after an hour without any', () => {
    const subject = emailSubject('a@example.com');
    const count = { failures: 1_000, lastAt: NOW };
    assert.deepEqual(decideAttempt([subject], [count], NOW + 60 * MINUTE_MS), { waitMs: 0, failures: [1] });
    assert.deepEqual(decideAttempt([subject], [count], NOW + 59 * MINUTE_MS), { waitMs: 0, failures: [1_001] });
  });

  test('are forgotten when the clock was set back, and wait no longer than the limit where clocks differ', () => {
    const waitMs = (lastAt: number): number =>
      decideAttempt([emailSubject('a@example.com')], [{ failures: 1_000, lastAt }], NOW).waitMs;
    assert.equal(waitMs(NOW + DAY_MS), 0);
    assert.equal(waitMs(NOW + MINUTE_MS), MINUTE_MS);
  });

  test('on an e-mail are the same however it is written, and others for another', () => {
    const hash = (email: string): string => Buffer.from(emailSubject(email).hash).toString('hex');
    assert.equal(hash(' Ada@Example.com '), hash('ada@example.com'));
    assert.notEqual(hash('ada@example.org'), hash('ada@example.com'));
  });
});
