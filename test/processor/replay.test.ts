/**
 * The same log gives the same store: a history of 2,500 mixed records is processed twice, with other sizes of batches,
 * transactions and tables, and everything that can be read is the same to the byte. FAULT_SEED=… takes another history.
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { suite, test } from 'node:test';
import { storeFileOf } from '../../src/data-folder/files.ts';
import { folderIn } from '../faults/scope.ts';
import { entriesOf } from './history.ts';
import { appendAll, processAll, storeCopyOf, withStore } from './processing.ts';
import { assertSame } from './store-dump.ts';

/** Enough for every rule, and with the sizes below for many batches, transactions, tables and merged runs. */
const RECORDS = 2_500;
const PEOPLE = 200;
/** Of the traces every so manieth is compared: what they say comes from events and records, which all are. */
const TRACES_EVERY = 10;

/** Where two files differ first; -1 if they do not. */
function firstDifference(one: Buffer, other: Buffer): number {
  if (one.equals(other)) return -1;
  return one.findIndex((byte, index) => byte !== other[index]);
}

suite('A history of 2,500 mixed records', () => {
  test('gives the same store to the byte, wherever batches end, and nothing more when it is read again', async (t) => {
    const seed = Number(process.env['FAULT_SEED'] ?? 2026);
    t.diagnostic(`FAULT_SEED=${seed}`);
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const entries = entriesOf(seed, RECORDS, PEOPLE);
    await appendAll(dataFolder, entries);
    const other = storeCopyOf(dataFolder, 'other');
    await processAll(dataFolder);
    await processAll(dataFolder, {
      storeFile: other,
      // Some hundreds of batches, many transactions, several groups of events, and runs that are merged several times.
      batchBytesMax: 5_000,
      transactionUsersMax: 300,
      groupEvents: 1_500,
      profileSizes: { fanOut: 3, blockRows: 8, mergedBytesMin: 500 },
    });

    const file = storeFileOf(dataFolder);
    await withStore(file, (one) =>
      withStore(other, async (two) => {
        // The dump holds it to the invariants that every store must keep, too.
        const traceIds = entries.filter((_, n) => n % TRACES_EVERY === 0).map(({ traceId }) => traceId);
        const lines = await assertSame(one, two, traceIds);
        t.diagnostic(`${lines} lines are the same`);
        const { hours } = await one.ledger(null, { from: null, to: null });
        const totals = { received: 0, stored: 0, duplicates: 0, rejected: 0 };
        for (const { events, usersRejected } of hours) {
          totals.received += events.received;
          totals.stored += events.stored;
          totals.duplicates += events.duplicates;
          totals.rejected += usersRejected;
        }
        t.diagnostic(JSON.stringify(totals));
        assert.equal(
          totals.received,
          entries.reduce((sum, { eventCount }) => sum + eventCount, 0),
        );
        assert.ok(totals.duplicates > RECORDS / 100 && totals.rejected > RECORDS / 100, 'the history is too tame');
        assert.deepEqual(await one.deadLetters(10), []);
      }),
    );

    const before = readFileSync(file);
    await processAll(dataFolder);
    const after = readFileSync(file);
    assert.equal(firstDifference(after, before), -1, `${before.length} bytes before, ${after.length} after`);
  });
});
