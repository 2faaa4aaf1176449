/** Counts of a store from before they were by currency are made anew, from the events that are stored. */

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { countsByCurrency } from '../../../src/backends/sqlite/counts-by-currency.ts';
import { openSqliteStoreWriter } from '../../../src/backends/sqlite/store-writer.ts';
import { feed, person, request } from '../../contract/store-feeding.ts';
import { entriesOf } from '../../processor/history.ts';

/** As it was, with one sum for all currencies. */
const OLD_COUNTS = `
  CREATE TABLE old AS SELECT tenant, width, start, event_name, sum(events) AS events, sum(revenue) AS revenue
    FROM counts GROUP BY tenant, width, start, event_name;
  DROP TABLE counts;
  ALTER TABLE old RENAME TO counts;`;

test('counts by currency are those of the stored events, in every table of events', async (context) => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-counts-'));
  context.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'store.db');
  const writer = openSqliteStoreWriter({ file, tableEvents: 50 });
  const sales = [{ revenue: 5, currency: 'EUR' }, { revenue: 0.1, currency: 'usd' }, { revenue: 7 }, {}];
  await feed({ writer }, [request([person({ user_id: 'u' }, sales)]), ...entriesOf(3, 200)]);
  await writer.close();
  const database = new DatabaseSync(file);
  const rows = (): unknown[] =>
    database.prepare('SELECT * FROM counts ORDER BY tenant, width, start, event_name, currency').all();
  const before = rows();
  assert.ok(before.length > 100);
  database.exec(OLD_COUNTS);
  countsByCurrency(database);
  assert.deepEqual(rows(), before);
  database.close();
});
