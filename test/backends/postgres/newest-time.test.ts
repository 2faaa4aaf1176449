/** The newest time that a database knows, by which the clock of the next start goes, next to the log. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { newestErasure } from '../../../src/backends/postgres/profile-changes.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { databaseFor } from './database.ts';

const ERASED_AT = Date.UTC(2026, 10, 18);

suite('The newest time in a database', { skip: whyNoPostgres() }, () => {
  test('is that of the last erasure of any tenant', async (context) => {
    const { pool } = await databaseFor(context);
    assert.equal(await newestErasure(pool), 0);
    await pool.query("INSERT INTO tenants (id, last_erased_at) VALUES ('a', 0), ('b', $1), ('c', $1 - 1)", [ERASED_AT]);
    assert.equal(await newestErasure(pool), ERASED_AT);
  });
});
