/** What the page advises about the clock of the server. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { adviceFor } from '../../dashboard/src/pages/health-advice.ts';
import type { Health } from '../../dashboard/src/api-types.ts';

const WELL: Health = {
  status: 'ready',
  reasons: [],
  warnings: [],
  processing_problem: null,
  version: '1.2.3',
  role: 'all',
  node: '26.0.0',
  started_at: '2026-11-15T12:00:00.000Z',
  backlog_bytes: 0,
  backlog_bytes_max: 1_000,
  lag_seconds: 0,
  disk_free_bytes: null,
  disk_free_bytes_min: 0,
  last_backup_at: null,
  clock_held_seconds: 0,
  clock_behind_seconds: 0,
  memory_bytes: 1,
  ledger_difference: 0,
  log_missing_records: 0,
  log_lost_records: 0,
  dead_letters: 0,
  requests: [],
  edges: 1,
  settings: [],
};

function titles(health: Partial<Health>): string[] {
  return adviceFor({ ...WELL, ...health }).map(({ tone, title }) => `${tone}: ${title}`);
}

suite('The advice on the page', () => {
  test('is none while the server is well', () => {
    assert.deepEqual(titles({}), []);
    assert.deepEqual(titles({ clock_behind_seconds: 2 }), []);
  });

  test('repeats what the start found', () => {
    assert.deepEqual(adviceFor({ ...WELL, warnings: ['log-ends is older', 'second'] }), [
      { tone: 'warn', title: 'The server warned when it started', text: 'log-ends is older. second.' },
    ]);
  });

  test('says why processing waits', () => {
    assert.deepEqual(titles({ processing_problem: 'the store is read-only' }), ['bad: Processing waits']);
  });

  test('is about the clock when it is held or behind', () => {
    assert.deepEqual(titles({ clock_held_seconds: 86_401 }), ['bad: The clock jumped ahead and is not trusted']);
    assert.deepEqual(titles({ clock_behind_seconds: 3_600 }), ['warn: The clock is behind the newest event']);
  });
});
