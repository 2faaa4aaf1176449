/** The newest time that an embedded store knows, by which the clock of the next start goes. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { newestProcessed } from '../../../src/backends/embedded/store/schema.ts';
import { openStoreFile } from '../../../src/backends/embedded/store/schema.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';

const RECEIVED_AT = Date.UTC(2026, 10, 16);
const ERASED_AT = RECEIVED_AT + 1_800_000;

test('the newest time of a store is that of its newest record, or of a later erase', (t) => {
  const folder = temporaryFolder();
  t.after(() => removeFolder(folder));
  const file = join(folder, 'store.db');
  const database = openStoreFile(file, 'writer');
  t.after(() => database.close());
  assert.equal(newestProcessed(file), 0);
  database
    .prepare('INSERT INTO event_groups (no, first_record, events, received_max) VALUES (1, 1, 0, ?)')
    .run(RECEIVED_AT);
  assert.equal(newestProcessed(file), RECEIVED_AT);
  database.prepare("INSERT INTO tenants (id, last_erased_at) VALUES ('t', ?)").run(ERASED_AT);
  assert.equal(newestProcessed(file), ERASED_AT);
});
