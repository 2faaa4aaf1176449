/** A process that puts runs of ten entries, each in a transaction, until it is killed, and says how many it committed. */

import { DatabaseSync } from 'node:sqlite';
import { RowsToWrite } from '../../../src/backends/embedded/sorted-runs/entries.ts';
import { SortedRuns } from '../../../src/backends/embedded/sorted-runs/sorted-runs.ts';

const [file = '', from = '0'] = process.argv.slice(2);
const shape = { name: 'hashed', keyColumns: 2, valueColumns: 1, hasBytes: false, hasFilters: true };
const database = new DatabaseSync(file);
const runs = new SortedRuns(database, shape, { fanOut: 3, blockRows: 4, mergedBytesMin: 150 });

for (let put = Number(from); put < Number(from) + 10_000; put++) {
  const rows = new RowsToWrite(shape, 10);
  for (let n = 0; n < 10; n++) rows.add([((put * 10 + n) * 2_654_435_761) % 2 ** 40, n], [put], '');
  database.exec('BEGIN IMMEDIATE');
  runs.putRun(put < 20 ? 1 : 2, rows);
  database.exec('COMMIT');
  process.send?.(put + 1);
  await new Promise((resolve) => {
    setImmediate(resolve);
  });
}
