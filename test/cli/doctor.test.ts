/**
 * `sluice doctor` finds what is wrong, says what to do, and changes nothing. Every check meets the real thing it is for:
 * real files that are missing, open to others, damaged or given up, and a real server.
 */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  cpSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { basename, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { tieDataFolder } from '../../src/backends/embedded/installation.ts';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { inspectSegment } from '../../src/backends/embedded/log/recovery.ts';
import { listSegments, makeMarker } from '../../src/backends/embedded/log/segments.ts';
import { writeLastBackup } from '../../src/backup/notes.ts';
import { runDoctor } from '../../src/cli/doctor.ts';
import {
  checkDatabaseClock,
  checkFolder,
  type DatabaseFacts,
  type DoctorParts,
  type DoctorShell,
  type Finding,
} from '../../src/cli/doctor-checks.ts';
import { checkBacklog, checkLedger, checkLog, recordsBetween } from '../../src/cli/doctor-data.ts';
import { keyFileOf, logFolderOf, serverUrlFileOf, storeFileOf } from '../../src/data-folder/files.ts';
import { createKey, newAccount } from '../../src/keys/manage.ts';
import { LogCorruptError, LogForbiddenError, NO_TENANT } from '../../src/log.ts';
import { writeMigrationMarker } from '../../src/migration/marker.ts';
import { createKey as createKeyWithCommand, post, startServer, user } from '../server.ts';
import { processAll } from '../processor/processing.ts';
import { type DataFolder, NOW, openDataFolder, refusal, testShell } from './data-shell.ts';
import { doctorShell } from './doctor-shell.ts';

interface Examined {
  readonly code: number;
  readonly findings: readonly Finding[];
  /** Findings that are not well, as one text. */
  readonly problem: string;
}

async function examine(
  data: string,
  args: readonly string[] = [],
  changes: Partial<DoctorShell> = {},
): Promise<Examined> {
  const { shell, out } = await doctorShell(data, changes);
  const code = await runDoctor([...args, '--json'], shell);
  const { findings } = JSON.parse(out()) as { findings: Finding[] };
  const problem = findings
    .filter(({ state }) => state !== 'ok')
    .map(({ check, state, message, advice }) => `${state} ${check}: ${message} → ${advice}`)
    .join('\n');
  return { code, findings, problem };
}

/** Processed data and a working key. */
async function healthyFolder(folder: DataFolder): Promise<void> {
  await folder.send([{ users: [user('ada')] }, { users: [user('bob')] }]);
  const keyStore = openSqliteKeyStore(keyFileOf(folder.data));
  const { id } = await keyStore.ensureAccount(newAccount('default', NOW));
  await createKey(keyStore, { ...KEY, accountId: id });
  await keyStore.close();
}

const KEY = {
  name: 'shop',
  kind: 'secret',
  environment: 'development',
  origins: [],
  expiresAt: null,
  now: NOW,
} as const;

/** Every file with its content, but for SQLite's count of openings in its first page. */
function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => statSync(join(folder, name)).isFile() && !/-(wal|shm)$/.test(name))
    .sort()
    .map((name) => {
      const bytes = readFileSync(join(folder, name));
      if (name.endsWith('.db')) bytes.fill(0, 24, 28).fill(0, 92, 96);
      return `${name} ${createHash('sha256').update(bytes).digest('hex')}`;
    });
}

suite('sluice doctor', () => {
  test('on a healthy folder all is well, exit code 0, and no file is changed', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    const before = filesIn(folder.data);
    const { code, findings, problem } = await examine(folder.data, ['--deep']);
    assert.equal(problem, '');
    assert.equal(code, 0);
    const checks = new Set(findings.map(({ check }) => check));
    for (const check of [
      'settings',
      'data folder',
      'server',
      'disk',
      'clock',
      'log',
      'store',
      'backlog',
      'ledger',
      'keys',
      'backup',
    ]) {
      assert.ok(checks.has(check), check);
    }
    assert.deepEqual(filesIn(folder.data), before);
  });

  test('for people it is a list with signs, what to do, and a summary', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    chmodSync(folder.data, 0o755);
    const { shell, out } = await doctorShell(folder.data);
    assert.equal(await runDoctor([], shell), 2);
    assert.match(out(), /^✓ settings {5}valid\n! data folder {2}other users can read/);
    assert.match(out(), /→ It contains personal data\. Make it private: chmod 700/);
    assert.match(out(), /✓ ledger +2 events received, and all accounted for/);
    assert.match(out(), /OK, with warnings: see ! above/);
  });

  test('backup: none is a warning once the data is older than a day, and so is one that is', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    const later = (hours: number) => examine(folder.data, [], { now: () => NOW + hours * 3_600_000 });
    assert.equal((await later(1)).problem, '');
    assert.match(
      (await later(30)).problem,
      /^warning backup: there was never one.* → Create one, .*sluice backup --to/,
    );
    const target = '/backups/sluice.tar.zst';
    const began_at = new Date(NOW).toISOString();
    writeLastBackup(folder.data, { began_at, target, bytes: 4_096, verified: true, sluice_version: '0.1.0' });
    const { findings, code } = await later(25);
    assert.equal(code, 0);
    const { message } = findings.find(({ check }) => check === 'backup') ?? {};
    assert.equal(message, 'the last one began 1d 1h ago: /backups/sluice.tar.zst (4.0 kB, checked)');
    assert.match((await later(27)).problem, /^warning backup: the last one began 1d 3h ago/);
    writeFileSync(join(folder.data, 'backup.json'), '{"began_at": 7}');
    assert.match((await later(30)).problem, /^warning backup: there was never one/);
  });

  test('a missing folder is an error, and nothing else is checked', async (context) => {
    const folder = openDataFolder(context);
    const { code, problem, findings } = await examine(join(folder.data, 'nowhere'));
    assert.equal(code, 1);
    assert.match(problem, /error data folder: .*nowhere does not exist → Name it with --data/);
    assert.equal(findings.length, 2);
  });

  test('store: what a crash left in the write-ahead log stays there for the next start', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    const writing = new DatabaseSync(storeFileOf(folder.data));
    writing.exec("UPDATE sequences SET next = next + 1 WHERE name = 'event'");
    const crashed = join(folder.data, '..', `${basename(folder.data)}-crashed`);
    cpSync(folder.data, crashed, { recursive: true });
    context.after(() => rmSync(crashed, { recursive: true }));
    writing.close();
    const files = [storeFileOf(crashed), `${storeFileOf(crashed)}-wal`];
    const before = files.map((file) => readFileSync(file));
    assert.notEqual(before[1]?.byteLength, 0);
    const { code, problem } = await examine(crashed, ['--deep']);
    assert.equal(code, 0, problem);
    for (const [index, file] of files.entries()) assert.deepEqual(readFileSync(file), before[index], file);
  });

  test('store: one that is gone is named, with what the log still holds of it', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    await folder.append([{ users: [user('cleo')] }]);
    for (const name of readdirSync(folder.data)) {
      if (name.startsWith('store.db')) rmSync(join(folder.data, name));
    }
    const whole = await examine(folder.data, ['--deep']);
    assert.equal(whole.code, 2);
    assert.match(
      whole.problem,
      /warning store: store\.db is gone; the log still has every request.*→ Start the server/,
    );
    writeFileSync(storeFileOf(folder.data), '');
    assert.match((await examine(folder.data)).problem, /warning store: store\.db is gone/);
    assert.equal(statSync(storeFileOf(folder.data)).size, 0, 'doctor made tables in it');
    rmSync(storeFileOf(folder.data));
    rmSync(join(logFolderOf(folder.data), '0000000000000001.log'));
    const cut = await examine(folder.data);
    assert.equal(cut.code, 1);
    assert.match(
      cut.problem,
      /error store: store\.db is gone.*: 2 requests are in neither → Put store\.db back, or restore/,
    );
    rmSync(logFolderOf(folder.data), { recursive: true });
    assert.match((await examine(folder.data)).problem, /error store: store\.db is gone.*: 3 requests are in neither/);
  });

  test('settings: mistakes are errors, unknown variables a warning, keys of clients neither', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    const env = { SLUICE_DATA: folder.data, SLUICE_DISK_FREE_MIN: '0', SLUICE_KEY: 'x', SLUICE_SERVICE_HOST: 'x' };
    assert.equal((await examine(folder.data, [], { env })).code, 0);
    const odd = await examine(folder.data, [], { env: { ...env, SLUICE_COLOUR_OF_THE_DAY: 'secret-value' } });
    assert.equal(odd.code, 2);
    assert.match(odd.problem, /unknown in the environment: SLUICE_COLOUR_OF_THE_DAY/);
    assert.ok(!odd.problem.includes('secret-value'));
    const wrong = await examine(folder.data, [], { env: { ...env, SLUICE_EDGES: 'many' } });
    assert.equal(wrong.code, 1);
    assert.match(wrong.problem, /error settings: SLUICE_EDGES is "many"/);
  });

  test('disk: below the limit is an error, near it a warning', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    const env = { SLUICE_DATA: folder.data, SLUICE_DISK_FREE_MIN: '1GB' };
    const full = await examine(folder.data, [], { env, freeBytesOf: () => 10 });
    assert.match(full.problem, /error disk: 10 B are free, and SLUICE_DISK_FREE_MIN is 1GB/);
    const near = await examine(folder.data, [], { env, freeBytesOf: () => 2 * 1_024 ** 3 });
    assert.match(near.problem, /warning disk: only 2\.0 GB are free/);
  });

  test('clock: one that is behind the newest event, far ahead of it, or was never set is reported', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    await folder.send([{ users: [user('eve')], receivedAt: NOW + 7_200_000 }]);
    const { problem } = await examine(folder.data);
    assert.match(problem, /warning clock: .*2h from now/);
    const ahead = await examine(folder.data, [], { now: () => NOW + 181 * 86_400_000 });
    assert.match(ahead.problem, /warning clock: .*after the newest event .*SLUICE_CLOCK_GAP_MAX \(180d\)/s);
    const unset = await examine(folder.data, [], { now: () => 0 });
    assert.match(unset.problem, /error clock: it says 1970-01-01/);
  });

  test('clock: what a running server does not trust is reported', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    let metrics = '# TYPE sluice_clock_held_seconds gauge\nsluice_clock_held_seconds 172800.5\n';
    const server = createServer((_, response) => response.end(metrics)).listen(0, '127.0.0.1');
    context.after(() => server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    writeFileSync(serverUrlFileOf(folder.data), `http://127.0.0.1:${port}\n`);
    const lockHolderOf = () => ({ isHeld: true, pid: process.pid });
    const held = await examine(folder.data, [], { lockHolderOf });
    assert.match(held.problem, /warning clock: .*does not trust it: received_at is 2d .*behind → .*restart the server/);
    metrics = 'sluice_clock_held_seconds 0\n';
    assert.doesNotMatch((await examine(folder.data, [], { lockHolderOf })).problem, /clock/);
  });

  test('ledger: of a segment that was given up ahead of the end it is not known how many records it had', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    writeFileSync(join(logFolderOf(folder.data), '0000000000000500.log.lost'), '');
    await folder.append([{ users: [user('eve')] }]);
    const { problem } = await examine(folder.data);
    assert.match(problem, /ledger: at least 1 record \(from position 500 on of partition 0\) was given up/);
    assert.doesNotMatch(problem, /1000000499/);
  });

  test('log: a segment that was given up is a warning, one that cannot be read is an error', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    await folder.send([{ users: [user('eve')] }]);
    const [first, second] = listSegments(logFolderOf(folder.data));
    assert.ok(first !== undefined && second !== undefined);
    const bytes = readFileSync(first.file);
    writeFileSync(first.file, bytes.fill(0x5a, 100, bytes.length));
    const { code, problem } = await examine(folder.data);
    assert.equal(code, 1);
    assert.match(problem, /error log: the segment 0{15}1\.log cannot be read/);
    renameSync(first.file, `${first.file}.lost`);
    const lost = await examine(folder.data);
    assert.equal(lost.code, 2);
    assert.match(lost.problem, /warning log: the segment 0{15}1\.log\.lost was given up/);
  });

  test('log: a segment that was given up under a wrong name is listed', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    writeFileSync(join(logFolderOf(folder.data), '0000000000000001.log.zst.lost'), 'x');
    const { code, problem } = await examine(folder.data);
    assert.equal(code, 2);
    assert.match(
      problem,
      /warning log: the file 0{15}1\.log\.zst\.lost is ignored: .* → .*rename it to 0{15}1\.log\.lost to give it up/,
    );
  });

  test('log: missing positions are nothing to do if the store has processed them, and an error if not', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    await folder.append([{ users: [user('eve')] }]);
    const [first, second] = listSegments(logFolderOf(folder.data));
    assert.ok(first !== undefined && second !== undefined);
    rmSync(first.file);
    makeMarker(logFolderOf(folder.data), first.firstPosition, 'missing');
    const processed = await examine(folder.data);
    assert.equal(processed.code, 2);
    assert.match(
      processed.problem,
      /warning log: positions 1 to 2 are missing; the store has processed all of them → Nothing to do/,
    );
    rmSync(second.file);
    // The start leaves a mark where the acknowledged record was.
    await folder.append([{ users: [user('zoe')] }]);
    const unprocessed = await examine(folder.data);
    assert.equal(unprocessed.code, 1);
    assert.match(
      unprocessed.problem,
      /error log: positions 1 to 3 are missing, and the store has processed the log up to position 2 only → /,
    );
    assert.doesNotMatch(unprocessed.problem, /New requests are safe/);
  });

  test('log: a damaged newest segment is reported in the words of a start', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    const segment = listSegments(logFolderOf(folder.data)).at(-1);
    assert.ok(segment);
    assert.match(
      (await examine(folder.data)).findings.map(({ message }) => message).join('\n'),
      /a start would accept/,
    );
    const bytes = readFileSync(segment.file);
    writeFileSync(segment.file, bytes.fill(0x5a, 600, 650));
    const { code, problem } = await examine(folder.data);
    assert.equal(code, 1);
    assert.throws(
      () => inspectSegment(segment),
      (error) => error instanceof LogCorruptError && problem.includes(`error log: ${error.message} → `),
    );
  });

  test('parts of different installations are reported in the words of a start', async (context) => {
    const [folder, other] = [openDataFolder(context), openDataFolder(context)];
    for (const { data } of [folder, other]) tieDataFolder(data);
    await healthyFolder(folder);
    await other.send([{ users: [user('eve')] }]);
    for (const name of ['keys.db', 'store.db', 'log']) {
      const [part, kept] = [join(folder.data, name), join(folder.data, 'kept')];
      renameSync(part, kept);
      cpSync(join(other.data, name), part, { recursive: true });
      const { code, findings } = await examine(folder.data);
      assert.equal(code, 1);
      const finding = findings.find(({ state }) => state === 'error');
      assert.match(finding?.message ?? '', /do not belong together: .* is of the installation /);
      assert.throws(() => tieDataFolder(folder.data), { name: 'OperatorError', message: finding?.message });
      rmSync(part, { recursive: true });
      renameSync(kept, part);
    }
    assert.equal((await examine(folder.data)).code, 0);
  });

  test('log/installation that was cut, emptied or overwritten is reported in the words of a start', async (context) => {
    const folder = openDataFolder(context);
    const { data } = folder;
    tieDataFolder(data);
    await healthyFolder(folder);
    const file = join(logFolderOf(data), 'installation');
    const id = readFileSync(file, 'utf8');
    for (const text of [id.slice(0, 18), '', 'x'.repeat(36)]) {
      writeFileSync(file, text);
      const { code, problem, findings } = await examine(data);
      assert.equal(code, 1, problem);
      assert.throws(
        () => tieDataFolder(data),
        ({ message }: Error) => problem.includes(message),
      );
      assert.ok(!findings.some(({ message }) => message.includes('a start would accept')));
    }
  });

  test('backlog: without a server it waits safely; with one that stands still it is an error', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    await folder.append([{ users: [user('eve')] }, { users: [user('zoe')] }]);
    const { code, problem } = await examine(folder.data);
    assert.equal(code, 2);
    assert.match(
      problem,
      /warning backlog: 2 requests \(.*\) wait, the oldest for 1h; no server is running → .*sluice serve/,
    );
    const lockHolderOf = () => ({ isHeld: true, pid: process.pid });
    let looks = 0;
    const pause = async (): Promise<void> => void (looks += 1);
    const stuck = await examine(folder.data, [], { lockHolderOf, pause });
    assert.equal(stuck.code, 1);
    assert.match(stuck.problem, /error backlog: .*nothing was processed within/);
    assert.equal(looks, 10);
  });

  test('backlog: a server on a busy machine is no error before it had time', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    await folder.append([{ users: [user('eve')] }]);
    const lockHolderOf = () => ({ isHeld: true, pid: process.pid });
    const young = await examine(folder.data, [], { lockHolderOf, pause: async () => {}, now: () => NOW - 3_590_000 });
    assert.equal(young.code, 2, young.problem);
    assert.match(young.problem, /warning backlog: .*nothing was processed within .* Check again in a minute/);
    let looks = 0;
    const pause = async (): Promise<void> => {
      looks += 1;
      if (looks === 4) await processAll(folder.data);
    };
    const slow = await examine(folder.data, [], { lockHolderOf, pause });
    assert.notEqual(slow.code, 1, slow.problem);
    assert.equal(looks, 4);
  });

  test('backlog: what was processed is counted in records, whatever positions were left out behind one that was given up', async (context) => {
    const folder = openDataFolder(context);
    await folder.append([{ users: [user('eve')] }]);
    const [first] = listSegments(logFolderOf(folder.data));
    renameSync(first?.file ?? '', `${first?.file}.lost`);
    rmSync(join(folder.data, 'log-ends'));
    await folder.append([{ users: [user('eve')] }, { users: [user('zoe')] }]);
    const log = openEmbeddedLogReader({ folder: logFolderOf(folder.data) });
    const { next } = await log.headers(0, 0, 10);
    assert.ok(next > 1_000_000_000);
    assert.equal(await recordsBetween(log, new Map([[0, 1]]), new Map([[0, next]])), 2);
    assert.equal(await recordsBetween(log, new Map([[0, next]]), new Map([[0, next]])), 0);
    await log.close();
  });

  test('store: damage to its structure is found; one that is too large for that is left to --deep, and doctor says so', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    const database = new DatabaseSync(storeFileOf(folder.data));
    database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    const { rootpage } = database.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'identifiers'").get() as {
      rootpage: number;
    };
    const { page_size } = database.prepare('PRAGMA page_size').get() as { page_size: number };
    database.close();
    const bytes = readFileSync(storeFileOf(folder.data));
    bytes.fill(0, (rootpage - 1) * page_size, rootpage * page_size);
    writeFileSync(storeFileOf(folder.data), bytes);
    for (const args of [[], ['--deep']]) {
      const { code, problem } = await examine(folder.data, args);
      assert.equal(code, 1);
      assert.match(problem, /error store: it is damaged: .*restore a backup/);
    }
    // Sparse: nothing is there but its size.
    truncateSync(storeFileOf(folder.data), 257 * 1024 * 1024);
    const { findings } = await examine(folder.data);
    const words = /^it opens, .*; its [\d.]+ MB were not checked for damage: sluice doctor --deep does$/;
    assert.ok(findings.some(({ check, message }) => check === 'store' && words.test(message)));
  });

  test('store: an event without its record is found by --deep', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    const database = new DatabaseSync(storeFileOf(folder.data));
    database.exec('DELETE FROM records WHERE no = 1');
    database.close();
    const { code, problem } = await examine(folder.data, ['--deep']);
    assert.equal(code, 1);
    assert.match(problem, /error store: it is damaged: event 1 is not one of its record 1 → /);
  });

  test('a store that is no database at all is reported in plain words', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    for (const suffix of ['-wal', '-shm']) writeFileSync(storeFileOf(folder.data) + suffix, '');
    writeFileSync(storeFileOf(folder.data), 'this is not a database, it is a text of some length'.repeat(40));
    const { code, problem } = await examine(folder.data);
    assert.equal(code, 1);
    assert.match(problem, /error store: the check failed: .*damaged/);
  });

  test('ledger: an hour that does not balance is an error, and so are events that --deep cannot find', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    const database = new DatabaseSync(storeFileOf(folder.data));
    database.exec('UPDATE ledger SET events_stored = events_stored - 1');
    database.close();
    const { code, problem } = await examine(folder.data, ['--deep']);
    assert.equal(code, 1);
    assert.match(problem, /error ledger: of 2 events received in the hour of .*, 1 are missing/);
    assert.match(problem, /error ledger: the ledger has 1 event, but 2 are stored/);
  });

  test('ledger: a dead letter is shown with its cause and its trace', async (context) => {
    const folder = openDataFolder(context);
    // What no edge would let in: the processor cannot make anything of it.
    await folder.send([{ users: [user('ada')] }, { body: Buffer.from('{"users":'), userCount: 1, eventCount: 1 }]);
    const { code, problem } = await examine(folder.data);
    assert.equal(code, 1);
    assert.match(
      problem,
      /error ledger: the request 01930000-\S+2 could not be processed and has been a dead letter since/,
    );
  });

  test('plans: one that this version cannot read is reported', async (context) => {
    const folder = openDataFolder(context);
    await healthyFolder(folder);
    const keyStore = openSqliteKeyStore(keyFileOf(folder.data));
    const [account] = await keyStore.accounts();
    const tenant = { accountId: account?.id ?? '', environment: 'production' } as const;
    const push = (text: string) =>
      keyStore.plans.push(tenant, {
        text,
        enforces: true,
        warns: false,
        createdAt: NOW,
        createdBy: 'k',
        basedOn: null,
      });
    await push('{"events":{}}');
    const found = (await examine(folder.data)).findings.find(({ check }) => check === 'plans');
    assert.deepEqual([found?.state, found?.message], ['ok', '1 tracking plan, readable']);
    await push('{"modes":{}}');
    await keyStore.close();
    const { code, problem } = await examine(folder.data);
    assert.equal(code, 1);
    assert.match(problem, /version 2 of the tracking plan of ".+" \(production\) cannot be read.*: modes is unknown/);
    assert.match(problem, /Events are not checked against it/);
  });

  test('keys: none, expired, expiring and leaked ones are reported', async (context) => {
    const folder = openDataFolder(context);
    await folder.send([{ users: [user('ada')] }]);
    assert.match((await examine(folder.data)).problem, /warning keys: no key is active/);
    const keyStore = openSqliteKeyStore(keyFileOf(folder.data));
    const { id: accountId } = await keyStore.ensureAccount(newAccount('default', NOW));
    await createKey(keyStore, { ...KEY, accountId, name: 'old', now: NOW - 86_400_000, expiresAt: NOW - 3_600_000 });
    await createKey(keyStore, { ...KEY, accountId, name: 'soon', expiresAt: NOW + 86_400_000 });
    const { row } = await createKey(keyStore, { ...KEY, accountId, name: 'seen' });
    await keyStore.recordUsage([{ keyId: row.id, usedAt: NOW, leakOrigin: 'https://shop.example' }]);
    await keyStore.close();
    const { code, problem } = await examine(folder.data);
    assert.equal(code, 2);
    assert.match(problem, /"old" \(.*\) expired 1h ago/);
    assert.match(problem, /"soon" \(.*\) expires in 1d/);
    assert.match(
      problem,
      new RegExp(`"seen" .* was used from the web page https://shop.example .*keys roll ${row.id} --overlap 1h`),
    );
  });

  test('beside a running server it names the process, and after kill -9 it says that none runs', {
    timeout: 60_000,
  }, async (context) => {
    const folder = openDataFolder(context);
    const server = await startServer({ dataFolder: folder.data });
    context.after(() => server.kill());
    const { key } = await createKeyWithCommand(folder.data);
    await post(server, key, { users: [user('ada')] });
    const running = await examine(folder.data, ['--deep'], { now: Date.now });
    assert.equal(running.problem, '');
    const message = ({ findings }: Examined): string => findings.find(({ check }) => check === 'server')?.message ?? '';
    assert.equal(message(running), `one is running on this folder (process ${server.pid})`);
    await server.kill();
    const dead = await examine(folder.data, [], { now: Date.now });
    assert.equal(message(dead), `none is running on this folder; the last one (process ${server.pid}) has ended`);
  });

  test('a running server that responds with 503 is shown with the reasons and how often', async (context) => {
    const folder = openDataFolder(context);
    const server = await startServer({ dataFolder: folder.data, env: { SLUICE_DISK_FREE_MIN: '100000GB' } });
    context.after(() => server.kill());
    const { key } = await createKeyWithCommand(folder.data);
    for (let n = 0; n < 2; n += 1) assert.equal((await post(server, key, { users: [user('ada')] })).status, 503);
    const { findings } = await examine(folder.data, [], { now: Date.now });
    const messages = findings.filter(({ check }) => check === 'server').map(({ message }) => message);
    assert.ok(messages.some((message) => message.startsWith('it is not ready: disk space is below')));
    assert.ok(
      messages.includes('since its start, requests got 503 (Segment: 429), by reason: disk 2'),
      messages.join(),
    );
  });

  test('all mistakes are reported at once', async (context) => {
    const folder = openDataFolder(context);
    const words = await refusal(
      async (args) => runDoctor(args, (await doctorShell(folder.data)).shell),
      ['--dep', 'now'],
      testShell({}),
    );
    assert.match(words, /did you mean --deep/);
  });
});

test('a folder of which only the marker of a migration is left had a log, and that is said', async (t) => {
  const { data } = openDataFolder(t);
  for (const name of readdirSync(data)) rmSync(join(data, name), { recursive: true });
  writeMigrationMarker(data, {
    id: 'm',
    state: 'migrated',
    location: 'db:5432/sluice',
    at: '2026-11-01T00:00:00.000Z',
  });
  const lockHolderOf = () => ({ isHeld: false, pid: null });
  const inspection = {
    refusals: [],
    newestRefused: null,
    unknownEnd: null,
    missing: null,
    outdatedMarkers: [],
    noted: [],
  };
  const parts = {
    config: { storeUrl: 'postgres://db:5432/sluice', logUrl: '' },
    dataFolder: data,
    lockHolderOf,
    inspectLocalLog: async () => inspection,
    log: async () => undefined,
  } as unknown as DoctorParts;
  const words = [...(await checkFolder(parts)), ...(await checkLog(parts))].map(({ message }) => message).join('\n');
  assert.doesNotMatch(words, /nothing of Sluice|none yet/);
  assert.match(words, /it is gone, with log-ends: migrated\.json says that this folder had one/);
});

test('clock: one that differs from the clock of the database is reported', async () => {
  const findingsOf = async (clockAheadMs: number): Promise<string> => {
    const parts = {
      config: { storeUrl: 'postgres://db:5432/sluice', logUrl: '' },
      now: () => NOW,
      lookAtDatabase: async () => ({ clockAheadMs }),
    } as unknown as DoctorParts;
    const findings = await checkDatabaseClock(parts);
    return findings.map(({ state, message, advice }) => `${state}: ${message} → ${advice}`).join();
  };
  assert.equal(await findingsOf(59_000), '');
  assert.equal(await findingsOf(-59_000), '');
  assert.match(await findingsOf(61_000), /^warning: .* 1m 1s ahead of the clock of the database → .*NTP/);
  assert.match(await findingsOf(-3 * 60_000), /^warning: .* 3m behind the clock of the database/);
  assert.match(
    await findingsOf(26 * 3_600_000),
    /^error: .* 1d 2h ahead of the clock of the database → .*stored twice/,
  );
});

test('backlog: of a log in Kafka messages are counted, of which a request has one for each user', async () => {
  const log = {
    partitions: async () => [0],
    backlogBytes: async () => 300,
    headers: async (_partition: number, position: number) => ({
      headers: [0, 1, 2].filter((at) => at >= position).map((at) => ({ position: at, receivedAt: NOW })),
      next: 3,
    }),
  };
  const parts = {
    config: { storeUrl: 'postgres://db:5432/sluice', logUrl: 'kafka://b:9092/t' },
    isDeep: false,
    now: () => NOW,
    pause: async () => undefined,
    log: async () => log,
    store: async () => ({ ledger: async () => ({ positions: new Map([[0, 0]]) }) }),
  } as unknown as DoctorParts;
  const [finding] = await checkBacklog(parts);
  assert.match(finding?.message ?? '', /^3 messages \(300 B\) wait/);
});

test('Kafka: brokers that are down are reported once, under Kafka, and not tried again', async () => {
  let tries = 0;
  const fails = async (): Promise<never> => {
    tries += 1;
    throw new Error(`Kafka at b:9092 cannot be used, try ${tries}`);
  };
  const env = { STORE_URL: 'postgres://db:5432/sluice', LOG_URL: 'kafka://b:9092/t' };
  const { shell, out } = await doctorShell('none', {
    env,
    now: () => NOW,
    lookAtDatabase: async () =>
      ({ hasTables: false, problemOfMigration: null, problemOfLog: null, clockAheadMs: 0 }) as DatabaseFacts,
    findLogReader: fails,
    openStore: fails,
    findKeyStore: async () => undefined,
  });
  assert.equal(await runDoctor(['--json'], shell), 1);
  const { findings } = JSON.parse(out()) as { findings: { check: string; state: string; message: string }[] };
  assert.deepEqual(
    findings.filter(({ state }) => state === 'error').map(({ check, message }) => `${check}: ${message}`),
    ['Kafka: the check failed: Kafka at b:9092 cannot be used, try 1'],
  );
  assert.equal(tries, 1);
});

test('Kafka: what a user without the right Read cannot check is a warning', async () => {
  const { shell, out } = await doctorShell('none', {
    env: { STORE_URL: 'postgres://db:5432/sluice', LOG_URL: 'kafka://b:9092/t' },
    now: () => NOW,
    lookAtDatabase: async () =>
      ({ hasTables: false, problemOfMigration: null, problemOfLog: null, clockAheadMs: 0 }) as DatabaseFacts,
    findLogReader: async () => undefined,
    openStore: async () => {
      throw new LogForbiddenError('partition 0 cannot be read');
    },
    findKeyStore: async () => undefined,
  });
  await runDoctor(['--json'], shell);
  const { findings } = JSON.parse(out()) as { findings: { state: string; message: string }[] };
  assert.deepEqual(
    findings.filter(({ state }) => state === 'error'),
    [],
  );
  assert.ok(
    findings.some(
      ({ message }) => message === 'not checked: this user may not read the topic (partition 0 cannot be read)',
    ),
  );
});

test('of many findings of one kind the first are shown, and how many more there are', async () => {
  const letter = (position: number): object => ({ tenantId: NO_TENANT, partition: 0, position, failedAt: NOW });
  const findingsOf = async (count: number): Promise<string[]> => {
    const store = {
      ledger: async () => ({ hours: [], positions: new Map(), missingRecords: 0, lost: [] }),
      deadLetters: async (limit: number) => Array.from({ length: Math.min(limit, count) }, (_, index) => letter(index)),
    };
    const parts = {
      config: { storeUrl: 'postgres://db:5432/sluice', logUrl: 'kafka://b:9092/t' },
      isDeep: false,
      store: async () => store,
    } as unknown as DoctorParts;
    const findings = await checkLedger(parts);
    return findings.slice(1).map(({ state, message, advice }) => `${state}: ${message}${advice ? ` → ${advice}` : ''}`);
  };
  const five = await findingsOf(5);
  assert.equal(five.length, 5);
  // It may be a damaged request, so its advice must not be to delete it at once.
  assert.match(
    five[0] ?? '',
    /cannot read; .*may be a damaged request: report it, and delete nothing.*Only then .*DELETE/,
  );
  const eleven = await findingsOf(11);
  assert.equal(eleven.length, 6);
  assert.equal(eleven[5], 'warning: and 6 more like these');
  assert.equal((await findingsOf(5_000))[5], 'warning: and at least 995 more like these');
});
