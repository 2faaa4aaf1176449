/**
 * A log that has lost its newest records while the store is ahead of it: a segment moved away or cut, an
 * older copy put back, the folder removed. Later requests must be stored all the same, and what is really lost is said.
 */

import assert from 'node:assert/strict';
import { cpSync, readdirSync, renameSync, rmSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { listSegments } from '../../src/backends/embedded/log/segments.ts';
import { doctorHere } from '../cli/doctor-shell.ts';
import { eventually, get, type TestServer } from '../server.ts';
import { ledgerOf, send, storedUsers } from './ledger-of-server.ts';
import { copyIn, folderIn, launch } from './scope.ts';

const REQUESTS = 40;
const LATER = 20;

/** What happens to the log in a data folder; `earlier` is what it was after half of the requests. */
type Fault = (log: string, earlier: string) => void;

const FAULTS: Readonly<Record<string, Fault>> = {
  'its newest segment was moved away': (log) => {
    rmSync(listSegments(log).at(-1)?.file ?? '');
  },
  'its newest segment was cut in half': (log) => {
    const newest = listSegments(log).at(-1)?.file ?? '';
    truncateSync(newest, Math.floor(statSync(newest).size / 2));
  },
  'its newest segment was emptied': (log) => truncateSync(listSegments(log).at(-1)?.file ?? ''),
  'log/ was put back from an earlier copy': (log, earlier) => {
    rmSync(log, { recursive: true });
    cpSync(earlier, log, { recursive: true });
  },
  'log/ was removed': (log) => rmSync(log, { recursive: true }),
};

const LOST_AND_PROCESSED =
  /the log has lost its newest records, positions \d+ to 40; the store has all of (them, so nothing is lost|these, but no segment is left that log-ends can be compared with)/;

function logOf(dataFolder: string): string {
  return join(dataFolder, 'log');
}

/** As /health and the metrics have it, which are a little behind. */
async function showLost(server: TestServer, key: string, records: number): Promise<void> {
  await eventually(
    'the health of the server shows what was lost',
    async () => {
      const { body } = await get(server, key, '/health');
      return (body as { log_lost_records: number }).log_lost_records === records;
    },
    20_000,
  );
}

suite('After the log has lost its newest records', () => {
  const shared = new AsyncDisposableStack();
  /** What a server left that was killed after half of the requests, and again after all; each fault hits a copy. */
  const used = { dataFolder: folderIn(shared), earlier: folderIn(shared), key: '' };

  before(async () => {
    const { dataFolder, earlier } = used;
    const first = await launch(shared, { dataFolder });
    const { key } = first;
    used.key = key;
    await send(first, key, REQUESTS / 2);
    await storedUsers(first, key, REQUESTS / 2);
    await first.kill();
    cpSync(logOf(dataFolder), earlier, { recursive: true });
    const second = await launch(shared, { dataFolder });
    await send(second, key, REQUESTS / 2);
    await storedUsers(second, key, REQUESTS);
    await second.kill();
  });
  after(() => shared.disposeAsync());

  for (const [what, fault] of Object.entries(FAULTS)) {
    test(`because ${what}, all later requests are stored, and the ledger accounts for all`, async () => {
      await using scope = new AsyncDisposableStack();
      const dataFolder = copyIn(scope, used.dataFolder);
      const { key } = used;
      fault(logOf(dataFolder), used.earlier);

      const doctor = await doctorHere(dataFolder);
      assert.equal(doctor.code, 2, doctor.words);
      const [words = ''] = LOST_AND_PROCESSED.exec(doctor.words) ?? [];
      assert.ok(words, doctor.words);
      assert.equal(words.includes('no segment is left'), what === 'log/ was removed');
      assert.doesNotMatch(doctor.words, /missing from it/);

      const third = await launch(scope, { dataFolder });
      const later = await send(third, key, LATER);
      await storedUsers(third, key, REQUESTS + LATER);
      for (const traceId of later) {
        const { body } = await get(third, key, `/traces/${traceId}`);
        assert.equal((body as { status: string }).status, 'processed');
      }
      const { balanced, missing_records: missing, lost_records: lost, totals } = await ledgerOf(third, key);
      assert.deepEqual([balanced, missing, lost, totals.users.received], [true, 0, 0, REQUESTS + LATER]);
      assert.ok(third.stderr().includes(words), third.stderr());
    });
  }

  test('that were acknowledged and not processed, processing waits until an operator decides, and 202s continue', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const first = await launch(scope, { dataFolder });
    const { key } = first;
    await send(first, key, 5);
    await storedUsers(first, key, 5);
    await first.kill();
    // The store of that moment: what follows is acknowledged, and not processed in it.
    const storeFiles = readdirSync(dataFolder).filter((name) => name.startsWith('store.db'));
    for (const name of storeFiles) cpSync(join(dataFolder, name), join(dataFolder, `copy-${name}`));
    const second = await launch(scope, { dataFolder });
    await send(second, key, 7);
    await second.kill();
    for (const name of readdirSync(dataFolder).filter((found) => found.startsWith('store.db')))
      rmSync(join(dataFolder, name));
    for (const name of storeFiles) renameSync(join(dataFolder, `copy-${name}`), join(dataFolder, name));
    // With the records of the first server, which the store has.
    for (const { file } of listSegments(logOf(dataFolder))) rmSync(file);
    const offline = await doctorHere(dataFolder);
    assert.equal(offline.code, 1, offline.words);
    assert.match(offline.words, / 7 records that the log should have are missing from it/);
    // As the processor would report it, with what to do.
    assert.match(offline.words, /The log has no segment any more, but the store has processed it only up to 5: /);

    const third = await launch(scope, { dataFolder });
    await send(third, key, 3);
    await eventually('the processor says what is missing', () => /positions 6 to 12\./.test(third.stderr()));
    const waiting = await ledgerOf(third, key);
    assert.deepEqual([waiting.balanced, waiting.missing_records, waiting.totals.users.received], [false, 7, 8]);
    assert.equal(waiting.lost_records, 0);
    await eventually(
      'the metric counts them',
      async () => {
        const metrics = await fetch(`${third.baseUrl}/metrics`).then((response) => response.text());
        return /^sluice_log_missing_records 7$/m.test(metrics);
      },
      20_000,
    );
    const words = /rename \S+\.missing to (\S+\.lost)/.exec(third.stderr())?.[1] ?? '';
    renameSync(words.replace(/\.lost$/, '.missing'), words);
    await storedUsers(third, key, 8);
    for (const restarted of [false, true]) {
      if (restarted) await third.stop();
      const server = restarted ? await launch(scope, { dataFolder }) : third;
      const decided = await ledgerOf(server, key);
      assert.deepEqual([decided.balanced, decided.missing_records, decided.lost_records], [true, 0, 7]);
      if (restarted) await showLost(server, key, 7);
    }
    const doctor = await doctorHere(dataFolder);
    assert.match(
      doctor.words,
      / 7 records \(positions 6 to 12 of partition 0\) were given up; processing continued at \d/,
    );
  });

  test('with its older ones, and store.db too, what the new store does not have stays visible', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const first = await launch(scope, { dataFolder });
    const { key } = first;
    await send(first, key, 5);
    await storedUsers(first, key, 5);
    await first.stop();
    const second = await launch(scope, { dataFolder });
    await send(second, key, 3);
    await storedUsers(second, key, 8);
    await second.stop();
    // As retention does.
    rmSync(listSegments(logOf(dataFolder))[0]?.file ?? '');
    for (const name of readdirSync(dataFolder)) if (name.startsWith('store.db')) rmSync(join(dataFolder, name));
    for (const stored of [3, 5]) {
      const server = await launch(scope, { dataFolder });
      if (stored > 3) await send(server, key, 2);
      await storedUsers(server, key, stored);
      const { balanced, missing_records: missing, lost_records: lost } = await ledgerOf(server, key);
      assert.deepEqual([balanced, missing, lost], [true, 0, 5]);
      if (stored > 3) await showLost(server, key, 5);
      await server.stop();
    }
    const doctor = await doctorHere(dataFolder);
    assert.equal(doctor.code, 2, doctor.words);
    assert.match(
      doctor.words,
      / 5 records \(positions 1 to 5 of partition 0\) were no longer in the log when this store was created on \d/,
    );
  });
});
