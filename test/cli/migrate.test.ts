/**
 * `sluice migrate`: an embedded installation with something of everything goes to PostgreSQL, and whatever is asked of
 * either side has the same response. Killed and stopped wherever it is, it continues and the result is the same. It refuses
 * what would make two histories of one.
 */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { lockFolder } from '../../src/backends/embedded/folder-lock.ts';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { makeTables } from '../../src/backends/postgres/make-tables.ts';
import { openPostgresMigrationTarget } from '../../src/backends/postgres/migration-target.ts';
import { openPool } from '../../src/backends/postgres/pool.ts';
import { openPostgresStoreWriter } from '../../src/backends/postgres/store-writer.ts';
import { keyFileOf, logFolderOf, storeFileOf } from '../../src/data-folder/files.ts';
import { OperatorError } from '../../src/errors.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { allocateMetrics, metricsWriter } from '../../src/telemetry/metrics.ts';
import type { MigrationTarget } from '../../src/migration/parts.ts';
import { migrationMarkerFileOf, readMigrationMarker } from '../../src/migration/marker.ts';
import { prepareDatabase } from '../../src/wiring/opening.ts';
import { readConfig } from '../../src/config/config.ts';
import { runDoctor } from '../../src/cli/doctor.ts';
import { Processor } from '../../src/processor/processor.ts';
import { folderIn, launch, refusedStart, type Scope } from '../faults/scope.ts';
import { PROCESSED_AT, processAll } from '../processor/processing.ts';
import { eventually, post, removeFolder, temporaryFolder, type TestServer } from '../server.ts';
import { dumpDatabase, ownPostgres, restoreDatabase, testPostgres, whyNoPostgres } from '../servers/postgres.ts';
import { doctorShell } from './doctor-shell.ts';
import { fillInstallation, type Installation } from './embedded-installation.ts';
import {
  assertSameArrivals,
  assertSameKeys,
  assertSameStores,
  assertSameTimelines,
  logNameOf,
  migrateHere,
  poolOf,
  runProgram,
} from './migrating.ts';

/** Enough for something of everything. */
const RECORDS = 150;
const SLOW = { timeout: 120_000 };
const OWN_SERVER = { ...SLOW, skip: whyNoPostgres('own') };
const DYING_PROGRAM = fileURLToPath(new URL('./migrate-program.ts', import.meta.url));

const NEW_KEY = ['keys', 'create', '--name', 'new', '--kind', 'secret', '--env', 'production'];
/** Of `sluice doctor`, the words of the one finding that says that something is broken. */
async function brokenIn(data: string, env: Readonly<Record<string, string>>): Promise<string> {
  const { shell, out } = await doctorShell(data, { env: { SLUICE_DATA: data, ...env }, now: Date.now });
  assert.equal(await runDoctor(['--json'], shell), 1);
  const { findings } = JSON.parse(out()) as { findings: { state: string; message: string }[] };
  const broken = findings.filter(({ state }) => state === 'error');
  assert.equal(broken.length, 1, out());
  return broken[0]?.message ?? '';
}

const OTHER_DATABASE = /was migrated to PostgreSQL at .* the database in STORE_URL was filled by another migration/;

suite('sluice migrate', { skip: whyNoPostgres() }, () => {
  /** Filled once; every test moves a copy. */
  const original = temporaryFolder();
  let installation: Installation;
  before(async () => {
    installation = await fillInstallation(original, RECORDS);
    // A copy has the same name; made now, so that all copies do.
    await logNameOf(original);
  });
  after(() => removeFolder(original));

  function copyIn(scope: Scope): string {
    const folder = join(folderIn(scope), 'data');
    cpSync(original, folder, { recursive: true });
    return folder;
  }

  const newDatabase = async (): Promise<string> => (await testPostgres()).newDatabase();

  test('moves everything: every response is the same, and the files are as they were', SLOW, async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, url] = [copyIn(scope), await newDatabase()];
    const { code, out, err } = await runProgram(['migrate', '--data', folder, '--to', url]);
    assert.deepEqual([code, err], [0, '']);
    assert.match(out, /^events +\d+ +\d+ +✓$/m);
    assert.match(out, /Ledger compared: \d+ hours of 4 tenants, the same on both sides\./);
    assert.match(out, /STORE_URL=postgres:\/\/sluice:…@127\.0\.0\.1:\d+\/\w+ npm start -- --data /);
    assert.ok(!`${out}${err}`.includes(new URL(url).password), 'the password is shown');
    assert.equal(digestOf(folder), digestOf(original));
    const pool = await poolOf(scope, url);
    await assertSameStores(original, pool, await logNameOf(folder), installation.traceIds);
    await assertSameTimelines(original, pool);
    await assertSameArrivals(original, pool);
    await assertSameKeys(original, pool);
  });

  test('killed again and again it continues where it stopped, and nothing is there twice', SLOW, async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, url] = [copyIn(scope), await newDatabase()];
    const ways = ['before', 'during', 'after'];
    let kills = 0;
    for (;;) {
      const args = [folder, url, String(4 + 2 * kills), ways[kills % ways.length] ?? ''];
      const { code, signal, err } = await runProgram(args, {}, DYING_PROGRAM);
      if (signal !== 'SIGKILL') {
        assert.equal(code, 0, err);
        assert.match(err, /Continuing the migration that began at/);
        break;
      }
      kills += 1;
      assert.equal(readMigrationMarker(folder)?.state, 'migrating');
    }
    assert.ok(kills >= 5, `it was killed ${kills} times only`);
    const pool = await poolOf(scope, url);
    await assertSameStores(original, pool, await logNameOf(folder), installation.traceIds);
    await assertSameKeys(original, pool);
  });

  test('stopped by a signal it says how to continue, and does so', async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, url] = [copyIn(scope), await newDatabase()];
    const stopping = new AbortController();
    stopping.abort();
    const stopped = migrateHere(['--data', folder, '--to', url], { stop: stopping.signal });
    await assert.rejects(stopped, saying(/^Stopped\. .*run the same command again/));
    assert.equal((await migrateHere(['--data', folder, '--to', url])).code, 0);
  });

  test('afterwards the rest of the log is processed into PostgreSQL, as it would have been here', SLOW, async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, url] = [copyIn(scope), await newDatabase()];
    assert.equal((await migrateHere(['--data', folder, '--to', url])).code, 0);
    const stayed = copyIn(scope);
    await processAll(stayed);
    const pool = await poolOf(scope, url);
    const logName = await logNameOf(folder);
    const log = openEmbeddedLogReader({ folder: logFolderOf(folder) });
    const writer = openPostgresStoreWriter({ pool: pool.share(), logName });
    // Twice, as after a restart: nothing is processed again.
    for (let run = 1; run <= 2; run += 1) {
      await new Processor({
        log,
        writer,
        options: { defaultCountry: null, junkValues: new Set() },
        metrics: metricsWriter(allocateMetrics(1), 0),
        logger: createLogger('silent', 'test'),
        now: () => PROCESSED_AT,
        waitForMore: () => Promise.resolve(),
        betweenTransactions: () => Promise.resolve(),
        isStoreShared: true,
      }).processAll();
    }
    await log.close();
    await writer.close();
    const { traceIds, pendingTraceIds } = installation;
    await assertSameStores(stayed, pool, logName, [...traceIds, ...pendingTraceIds]);
  });

  test('a server on the moved data lets old keys in, processes what was pending, and takes more in', SLOW, async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, url] = [copyIn(scope), await newDatabase()];
    assert.equal((await migrateHere(['--data', folder, '--to', url])).code, 0);
    const server = await launch(scope, { dataFolder: folder, env: { STORE_URL: url } });
    const { key, pendingTraceIds } = installation;
    assert.doesNotMatch(server.stdout(), /sk_dev_|first key/);
    const users = [{ identifiers: { user_id: 'pending-2' }, events: [{ event_name: 'later' }] }];
    const sent = await post(server, key, JSON.stringify({ users }));
    assert.equal(sent.status, 202, sent.text);
    const { trace_id: traceId } = sent.body as { trace_id: string };
    for (const id of [...pendingTraceIds, traceId]) {
      await eventually(`${id} is processed`, async () => (await trace(server, key, id))?.status === 'processed');
    }
    const pending = await trace(server, key, pendingTraceIds[0] ?? '');
    const sentLater = await trace(server, key, traceId);
    assert.ok(pending?.users[0]?.profile_id);
    assert.equal(sentLater?.users[0]?.profile_id, pending.users[0].profile_id);
    assert.equal(await server.stop(), 0);
  });

  test(
    'without migrated.json an embedded server continues from the old files and the log, and PostgreSQL is refused',
    SLOW,
    async () => {
      await using scope = new AsyncDisposableStack();
      const [folder, url] = [copyIn(scope), await newDatabase()];
      const { key } = installation;
      const sendAs = async (server: TestServer, name: string): Promise<string> => {
        const users = [{ identifiers: { user_id: 'pending-2' }, events: [{ event_name: name }] }];
        const { status, body } = await post(server, key, JSON.stringify({ users }));
        assert.equal(status, 202);
        return (body as { trace_id: string }).trace_id;
      };
      const processed = (server: TestServer, id: string): Promise<boolean> =>
        eventually(`${id} is processed`, async () => (await trace(server, key, id))?.status === 'processed', 30_000);
      const before = await launch(scope, { dataFolder: folder });
      await processed(before, await sendAs(before, 'before'));
      await before.stop();
      assert.equal((await migrateHere(['--data', folder, '--to', url])).code, 0);
      const moved = await launch(scope, { dataFolder: folder, env: { STORE_URL: url } });
      const since = await sendAs(moved, 'since');
      await processed(moved, since);
      await moved.stop();

      rmSync(migrationMarkerFileOf(folder));
      const back = await launch(scope, { dataFolder: folder });
      await processed(back, since);
      await processed(back, await sendAs(back, 'back'));
      await back.stop();
      const refused = await refusedStart({ dataFolder: folder, env: { STORE_URL: url } });
      assert.match(refused, /was not migrated to PostgreSQL/);
    },
  );

  test(
    'after a second migration the first database is refused, and a dump of the second is accepted',
    SLOW,
    async () => {
      await using scope = new AsyncDisposableStack();
      const [folder, first, second] = [copyIn(scope), await newDatabase(), await newDatabase()];
      assert.equal((await migrateHere(['--data', folder, '--to', first])).code, 0);
      rmSync(migrationMarkerFileOf(folder));
      assert.equal((await migrateHere(['--data', folder, '--to', second])).code, 0);

      // Its data would be that of before: erased people back, new keys gone.
      const old = { STORE_URL: first };
      assert.match(await refusedStart({ dataFolder: folder, env: old }), OTHER_DATABASE);
      assert.match(await brokenIn(folder, old), OTHER_DATABASE);
      const created = await runProgram([...NEW_KEY, '--data', folder], old);
      assert.equal(created.code, 1);
      assert.match(created.err, OTHER_DATABASE);

      const dump = join(folderIn(scope), 'database.dump');
      await dumpDatabase(second, dump);
      const restored = await restoreDatabase(dump);
      await launch(scope, { dataFolder: folder, env: { STORE_URL: restored } });
      // What the refusal names for an operator who wants the old database all the same.
      await launch(scope, { dataFolder: join(folderIn(scope), 'new'), env: old });
    },
  );

  test(
    'a log that was put back without the rest of its folder is refused, and each advice of that works',
    SLOW,
    async () => {
      await using scope = new AsyncDisposableStack();
      const [folder, url] = [copyIn(scope), await newDatabase()];
      const [alone, segments] = [folderIn(scope), folderIn(scope)];
      cpSync(join(folder, 'log'), join(alone, 'log'), { recursive: true });
      cpSync(join(folder, 'log'), join(segments, 'log'), {
        recursive: true,
        filter: (path) => statSync(path).isDirectory() || /\d{16}\.log/.test(path),
      });
      assert.equal((await migrateHere(['--data', folder, '--to', url])).code, 0);
      const env = { STORE_URL: url };
      for (const dataFolder of [alone, segments]) {
        const refused = await refusedStart({ dataFolder, env });
        assert.match(refused, /migrated\.json is missing, .* would be processed a second time/);
        assert.match(await brokenIn(dataFolder, env), /migrated\.json is missing/);
        const [, file = '', text = ''] = /make (\S+migrated\.json) with this text: (\{.*\})$/m.exec(refused) ?? [];
        writeFileSync(file, text);
      }
      const server = await launch(scope, { dataFolder: segments, env });
      await server.stop();
      const other = { STORE_URL: await newDatabase() };
      rmSync(migrationMarkerFileOf(segments));
      rmSync(join(segments, 'log', 'installation'));
      assert.match(
        await refusedStart({ dataFolder: segments, env: other }),
        /does not say which installation it belongs to .* has never processed anything of it/,
      );
    },
  );

  test('a migration that was begun in two databases is finished in one of them only', SLOW, async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, first, second] = [copyIn(scope), await newDatabase(), await newDatabase()];
    const stopping = new AbortController();
    stopping.abort();
    await assert.rejects(migrateHere(['--data', folder, '--to', first], { stop: stopping.signal }));
    const broken = await brokenIn(folderIn(scope), { STORE_URL: first });
    assert.match(broken, /A "sluice migrate" into the database in STORE_URL is not finished/);
    assert.equal((await migrateHere(['--data', folder, '--to', second])).code, 0);
    await assert.rejects(
      migrateHere(['--data', folder, '--to', first]),
      saying(/was migrated to .* and continues there/),
    );
  });

  test('once moved, an embedded server and commands on keys refuse the folder, and moving again does nothing', async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, url] = [copyIn(scope), await newDatabase()];
    assert.equal((await migrateHere(['--data', folder, '--to', url])).code, 0);
    assert.match(await refusedStart({ dataFolder: folder }), /was migrated to PostgreSQL at .*Set STORE_URL/s);
    const keys = await runProgram(['keys', 'list', '--data', folder]);
    assert.equal(keys.code, 1);
    assert.match(keys.err, /was migrated to PostgreSQL/);
    const { out: examined } = await runProgram(['doctor', '--data', folder]);
    assert.match(examined, /^✗ store +the check failed: The data in /m);
    assert.equal(examined.match(/✗/g)?.length, 2, examined);
    const again = await migrateHere(['--data', folder, '--to', url]);
    assert.equal(again.code, 0);
    assert.match(again.out, /^This data was migrated to .* npm start/s);
    const elsewhere = migrateHere(['--data', folder, '--to', await newDatabase()]);
    await assert.rejects(elsewhere, saying(/was migrated to .* and continues there/));
    rmSync(migrationMarkerFileOf(folder));
    assert.equal((await runProgram(['keys', 'list', '--data', folder])).code, 0);
  });

  test(
    'a database that goes away meanwhile is reported, and what it had acknowledged is still there',
    OWN_SERVER,
    async () => {
      await using scope = new AsyncDisposableStack();
      const folder = copyIn(scope);
      const postgres = await ownPostgres();
      scope.defer(() => postgres.close());
      let chunks = 0;
      const openTarget = async (url: string): Promise<MigrationTarget> => {
        const target = await openPostgresMigrationTarget(url);
        const take = target.take.bind(target);
        target.take = async (...chunk) => {
          chunks += 1;
          if (chunks === 8) await postgres.stop('immediate');
          await take(...chunk);
        };
        return target;
      };
      const cut = migrateHere(['--data', folder, '--to', postgres.url], { openTarget });
      await assert.rejects(cut, saying(/\nWhat was copied so far is kept\. .*run the same command again/));
      await postgres.start();
      assert.equal((await migrateHere(['--data', folder, '--to', postgres.url])).code, 0);
      const pool = await poolOf(scope, postgres.url);
      await assertSameKeys(original, pool);
    },
  );

  test('a folder in which keys were made and no server ran is migrated, too', async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, url] = [copyIn(scope), await newDatabase()];
    rmSync(storeFileOf(folder));
    const { code, out } = await migrateHere(['--data', folder, '--to', url, '--json']);
    const result = JSON.parse(out) as { is_equal: boolean; parts: Record<string, { here: number; there: number }> };
    assert.deepEqual([code, result.is_equal], [0, true]);
    assert.deepEqual(
      [result.parts['keys'], result.parts['nodes']],
      [
        { here: 4, there: 4 },
        { here: 0, there: 0 },
      ],
    );
    await assertSameKeys(original, await poolOf(scope, url));
  });

  test('it is refused while a server runs on the folder, and nothing is begun', async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, url] = [copyIn(scope), await newDatabase()];
    const lock = lockFolder(folder);
    scope.defer(() => lock.release());
    const { code, err } = await runProgram(['migrate', '--data', folder], { STORE_URL: url });
    assert.equal(code, 1);
    assert.match(err, /^sluice: The data folder .* is in use by another Sluice server/);
    assert.ok(!existsSync(migrationMarkerFileOf(folder)));
  });

  test('it is refused on a database that holds other data, or another migration', async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, url] = [copyIn(scope), await newDatabase()];
    const pool = await poolOf(scope, url);
    await makeTables(pool);
    await pool.query("INSERT INTO accounts (id, name, created_at) VALUES ('acct_x', 'x', 1)");
    const foreign = migrateHere(['--data', folder, '--to', url]);
    await assert.rejects(
      foreign,
      saying(/holds data already \(in its table sluice\.accounts\).*Name an empty database/),
    );
    assert.ok(!existsSync(migrationMarkerFileOf(folder)), 'the folder was marked although nothing was begun');

    const other = await newDatabase();
    assert.equal((await migrateHere(['--data', copyIn(scope), '--to', other])).code, 0);
    await assert.rejects(migrateHere(['--data', folder, '--to', other]), saying(/holds another migration/));
  });

  test('a migration whose marker was removed meanwhile is not gone on with: the data may have changed', async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, url] = [copyIn(scope), await newDatabase()];
    const stopping = new AbortController();
    stopping.abort();
    await assert.rejects(migrateHere(['--data', folder, '--to', url], { stop: stopping.signal }));
    assert.match(
      await refusedStart({ dataFolder: folder }),
      /is being migrated .* run the same "sluice migrate" again/s,
    );
    rmSync(migrationMarkerFileOf(folder));
    await assert.rejects(migrateHere(['--data', folder, '--to', url]), saying(/holds a part of another migration/));
    // Into an empty one it starts over.
    assert.equal((await migrateHere(['--data', folder, '--to', await newDatabase()])).code, 0);
  });

  test('a difference between the two sides is reported, and no server starts on it', async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, url] = [copyIn(scope), await newDatabase()];
    const { code, out } = await migrateHere(['--data', folder, '--to', url], {
      openTarget: async (to) => {
        const target = await openPostgresMigrationTarget(to);
        const prepareForWrites = target.prepareForWrites.bind(target);
        target.prepareForWrites = async (nextNumber) => {
          await prepareForWrites(nextNumber);
          const pool = await openPool({ url: to, max: 1, applicationName: 'sluice test' });
          await pool.query('DELETE FROM merges WHERE no = (SELECT min(no) FROM merges)');
          await pool.query(
            'UPDATE ledger SET events_stored = events_stored - 1 WHERE hour = (SELECT min(hour) FROM ledger)',
          );
          await pool.close();
        };
        return target;
      },
    });
    assert.equal(code, 1);
    assert.match(out, /^merges +\d+ +\d+ +✗$/m);
    assert.match(
      out,
      /NOT the same:\n {2}- merges: \d+ rows here, \d+ there\n {2}- ledger of acct_\w+\/\w+: the hour 20\d\d-/,
    );
    assert.equal(readMigrationMarker(folder)?.state, 'migrating');
    const { config } = readConfig({ env: { STORE_URL: url }, args: [] });
    await assert.rejects(
      prepareDatabase(config),
      saying(/A "sluice migrate" into the database in STORE_URL is not finished/),
    );
  });

  test(
    'a folder whose data was not migrated is refused with STORE_URL, and each advice of that works',
    SLOW,
    async () => {
      await using scope = new AsyncDisposableStack();
      const [folder, url] = [copyIn(scope), await newDatabase()];
      const env = { STORE_URL: url };
      const words = await refusedStart({ dataFolder: folder, env });
      assert.match(words, /was not migrated to PostgreSQL\. Migrate it: sluice migrate --data/);
      assert.match(words, /start on another data folder: --data FOLDER/);
      assert.ok(!words.includes(new URL(url).password));
      const broken = await brokenIn(folder, env);
      assert.ok(words.includes(broken), broken);
      const refused = await runProgram([...NEW_KEY, '--data', folder], env);
      assert.equal(refused.code, 1);
      assert.ok(words.includes(refused.err.trim()), refused.err);

      const other = { STORE_URL: await newDatabase() };
      const created = await runProgram([...NEW_KEY, '--data', join(folderIn(scope), 'new')], other);
      assert.equal(created.code, 0, created.err);
      await launch(scope, { dataFolder: join(folderIn(scope), 'new'), env: other });
      assert.equal((await migrateHere(['--data', folder, '--to', url])).code, 0);
      await launch(scope, { dataFolder: folder, env });
    },
  );

  test('mistakes are reported all at once, by the name of the flag, without passwords', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    await assert.rejects(migrateHere(['--data', folder]), saying(/no database given; expected --to postgres:/));
    const wrong = migrateHere(['--data', folder, '--to', 'mysql://u:secret-4711@h/d', 'extra', '--jsno']);
    await assert.rejects(wrong, (error) => {
      assert.ok(error instanceof OperatorError);
      assert.match(error.message, /unknown flag --jsno; did you mean --json\?/);
      assert.match(error.message, /- --to .*postgres:\/\//);
      assert.match(error.message, /unexpected argument "extra"/);
      return !error.message.includes('secret-4711');
    });
    const nowhere = migrateHere(['--data', join(folder, 'none'), '--to', 'postgres://u:p@127.0.0.1:1/d']);
    await assert.rejects(nowhere, saying(/has neither store\.db nor keys\.db/));
    assert.ok(!existsSync(join(folder, 'none')));
    const away = migrateHere(['--data', copyIn(scope), '--to', 'postgres://u:p@127.0.0.1:1/d']);
    await assert.rejects(
      away,
      saying(/^The database postgres:\/\/u:…@127\.0\.0\.1:1\/d cannot be reached: .* is --to right\?$/),
    );
    const unknown = migrateHere(['--data', copyIn(scope), '--to', 'postgres://u:p@127.0.0.1:1/d?x=1']);
    await assert.rejects(unknown, saying(/^--to has the parameter "x"/));
  });
});

interface TraceResponse {
  readonly status: string;
  readonly users: readonly { readonly profile_id: string | null }[];
}

async function trace(server: TestServer, key: string, traceId: string): Promise<TraceResponse | undefined> {
  const response = await fetch(`${server.baseUrl}/traces/${traceId}`, { headers: { authorization: `Bearer ${key}` } });
  return response.status === 200 ? ((await response.json()) as TraceResponse) : undefined;
}

function saying(words: RegExp): (error: unknown) => true {
  return (error) => {
    assert.ok(error instanceof OperatorError, String(error));
    assert.match(error.message, words);
    return true;
  };
}

function digestOf(folder: string): string {
  const digest = createHash('sha256');
  for (const file of [storeFileOf(folder), keyFileOf(folder)]) digest.update(readFileSync(file));
  return digest.digest('hex');
}
