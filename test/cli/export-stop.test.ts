/**
 * `sluice export` can be stopped at any page, and after a crash continues from one of the last ones.
 */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { suite, type TestContext, test } from 'node:test';
import { runExport } from '../../src/cli/export.ts';
import type { Config } from '../../src/config/config.ts';
import type { Store } from '../../src/store.ts';
import { removeFolder, runSluice, temporaryFolder } from '../server.ts';
import { type DataFolder, openDataFolder, refusal, run, type TestShell } from './data-shell.ts';

const USERS = 5_000;

async function filledFolder(context: TestContext): Promise<DataFolder> {
  const folder = openDataFolder(context);
  const users = Array.from({ length: USERS }, (_, n) => ({
    identifiers: { user_id: `u${n}` },
    events: [{ event_name: 'seen' }],
  }));
  await folder.send([{ users }]);
  return folder;
}

function outFile(context: TestContext, name: string): string {
  const folder = temporaryFolder();
  context.after(() => removeFolder(folder));
  return join(folder, name);
}

/** Calls `before` before each page of events is read, with its number. */
function watched(shell: TestShell, before: (page: number) => void): TestShell {
  const openStore = async (config: Config): Promise<Store> => {
    const store = await shell.shell.openStore(config);
    assert.ok(store !== undefined);
    let page = 0;
    return {
      ...bound(store),
      events: (tenantId, query) => {
        before(++page);
        return store.events(tenantId, query);
      },
    };
  };
  return { ...shell, shell: { ...shell.shell, openStore } };
}

/** The methods may live on a prototype. */
function bound(store: Store): Store {
  return Object.assign(Object.create(store) as Store, {
    ledger: store.ledger.bind(store),
    tenants: store.tenants.bind(store),
    close: store.close.bind(store),
  });
}

suite('Stopping sluice export', () => {
  for (const format of ['ndjson', 'csv', 'parquet']) {
    test(`a signal during an export to ${format} is heard before the next page`, async (context) => {
      const folder = await filledFolder(context);
      const out = outFile(context, `events.${format}`);
      const shell = folder.shell();
      let pages = 0;
      const stopped = watched(shell, (page) => {
        pages = page;
        // As signals come: when the command lets the event loop run, and not earlier.
        if (page === 2) setImmediate(() => shell.stopping.abort());
      });
      assert.match(await refusal(runExport, ['--format', format, '--out', out], stopped), /^Stopped\./);
      assert.equal(pages, 2);
      assert.ok(!existsSync(out));
      assert.equal(existsSync(`${out}.part`), format !== 'parquet');
      assert.equal(existsSync(`${out}.part.state`), format !== 'parquet');
      const { code, err } = await run(runExport, ['--format', format, '--out', out], folder.shell());
      assert.equal(code, 0);
      assert.equal(err.includes('Continuing after 2,000 rows'), format !== 'parquet');
    });
  }

  test('an export to stdout hears a signal, too', async (context) => {
    const folder = await filledFolder(context);
    const shell = folder.shell();
    const stopped = watched(shell, (page) => {
      if (page === 2) setImmediate(() => shell.stopping.abort());
    });
    const { code, out } = await run(runExport, ['--format', 'ndjson'], stopped);
    assert.equal(code, 1);
    assert.equal(out.trimEnd().split('\n').length, 2_000);
  });

  test('an export that was killed soon after its start continues', async (context) => {
    const folder = await filledFolder(context);
    const whole = outFile(context, 'whole.ndjson');
    await run(runExport, ['--format', 'ndjson', '--out', whole], folder.shell());
    const out = outFile(context, 'events.ndjson');
    const killed = watched(folder.shell(), (page) => {
      if (page === 3) throw new Error('killed');
    });
    await assert.rejects(runExport(['--format', 'ndjson', '--out', out], killed.shell), /killed/);
    const { err } = await run(runExport, ['--format', 'ndjson', '--out', out], folder.shell());
    assert.match(err, /Continuing after 1,000 rows/);
    assert.ok(readFileSync(out).equals(readFileSync(whole)));
  });

  test('every two seconds it is noted down how far it has come', async (context) => {
    const folder = await filledFolder(context);
    const out = outFile(context, 'events.ndjson');
    let now = folder.shell().shell.now();
    const slow = folder.shell({ now: () => now });
    const killed = watched(slow, (page) => {
      now += 1_000;
      if (page === 5) throw new Error('killed');
    });
    await assert.rejects(runExport(['--format', 'ndjson', '--out', out], killed.shell), /killed/);
    const { err } = await run(runExport, ['--format', 'ndjson', '--out', out], folder.shell());
    assert.match(err, /Continuing after 3,000 rows/);
  });

  test('a clock that is set back does not keep it from being noted down', async (context) => {
    const folder = await filledFolder(context);
    const out = outFile(context, 'events.ndjson');
    let now = folder.shell().shell.now();
    const killed = watched(folder.shell({ now: () => now }), (page) => {
      if (page === 3) now -= 3_600_000;
      if (page === 4) throw new Error('killed');
    });
    await assert.rejects(runExport(['--format', 'ndjson', '--out', out], killed.shell), /killed/);
    const { err } = await run(runExport, ['--format', 'ndjson', '--out', out], folder.shell());
    assert.match(err, /Continuing after 3,000 rows/);
  });

  test('a damaged state is reported, and the export starts over', async (context) => {
    const folder = await filledFolder(context);
    const out = outFile(context, 'events.ndjson');
    for (const text of ['null', '{"command":', '{}', '{"command":"x","masked":null,"checkpoint":{"rows":1}}']) {
      writeFileSync(`${out}.part`, 'half a li');
      writeFileSync(`${out}.part.state`, text);
      const { code, err } = await run(runExport, ['--format', 'ndjson', '--out', out, '--overwrite'], folder.shell());
      assert.equal(code, 0);
      assert.ok(err.startsWith(`${out}.part.state is damaged: the export starts over.\n`), err);
      assert.equal(readFileSync(out, 'utf8').trimEnd().split('\n').length, USERS);
    }
  });

  test('the folder of the file need not be readable', async (context) => {
    const folder = await filledFolder(context);
    const out = outFile(context, 'events.ndjson');
    // Root may read everything.
    const isRoot = process.getuid?.() === 0;
    if (isRoot) execFileSync('chown', ['-R', '65534:65534', folder.data, dirname(out)]);
    chmodSync(dirname(out), 0o300);
    const args = ['export', '--format', 'ndjson', '--out', out];
    const ran = await runSluice(args, { SLUICE_DATA: folder.data }, isRoot ? { uid: 65_534, gid: 65_534 } : {});
    chmodSync(dirname(out), 0o700);
    assert.equal(ran.code, 0, ran.stderr);
  });

  test('an account that does not exist gets an error with those that do', async (context) => {
    const folder = openDataFolder(context);
    await folder.send([{ users: [], account: 'shop' }]);
    const words = await refusal(runExport, ['--format', 'ndjson', '--account', 'nope'], folder.shell());
    assert.equal(words, 'There is no account "nope". Choose one:\n  --account "shop"');
    const near = await refusal(runExport, ['--format', 'ndjson', '--account', 'shpo'], folder.shell());
    assert.equal(near, 'There is no account "shpo"; did you mean shop? Choose one:\n  --account "shop"');
  });
});
