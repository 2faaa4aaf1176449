/**
 * `sluice export`: what is in the store, in three formats, all of it and once, also when it was interrupted.
 */

import assert from 'node:assert/strict';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { suite, type TestContext, test } from 'node:test';
import * as fc from 'fast-check';
import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } from 'hyparquet';
import { csvLine } from '../../src/cli/export-formats.ts';
import { runExport } from '../../src/cli/export.ts';
import type { Config } from '../../src/config/config.ts';
import type { EventQuery, Store, StoredEvent } from '../../src/store.ts';
import { removeFolder, temporaryFolder } from '../server.ts';
import {
  type DataFolder,
  NOW,
  openDataFolder,
  pushPlan,
  refusal,
  run,
  testShell,
  type TestShell,
} from './data-shell.ts';

const EVENTS = 3_500;

/** A line of csv with these texts. */
function lineOf(texts: readonly (string | null)[], isRaw: boolean): string {
  const columns = texts.map((text) => ({ kind: 'text' as const, cell: () => text }));
  return csvLine(columns, null, isRaw);
}

/** Users with events of two kinds; some with nothing to match by. */
async function filledFolder(context: TestContext): Promise<DataFolder> {
  const folder = openDataFolder(context);
  const users = Array.from({ length: EVENTS / 5 }, (_, n) => {
    const events = Array.from({ length: 5 }, (_, i) => ({
      event_name: i === 0 ? 'paid' : 'seen "it", =1+1',
      timestamp: new Date(NOW - 86_400_000 + n * 60_000 + i).toISOString(),
      ...(i === 0 && { revenue: n + 0.25 }),
      note: `line\r\nbreak ${n}`,
    }));
    return { identifiers: { user_id: n % 7 === 0 ? 'null' : `u${n}` }, events, user_properties: { n } };
  });
  await folder.send([{ users }]);
  return folder;
}

async function eventsOf(folder: DataFolder): Promise<StoredEvent[]> {
  const tenantId = await folder.tenantId();
  return folder.withStore(async (store) => {
    const query = { profileId: null, eventName: null, from: null, to: null, limit: 1_000_000, cursor: null };
    return [...((await store.events(tenantId, query))?.rows ?? [])];
  });
}

function outFile(context: TestContext, name: string): string {
  const folder = temporaryFolder();
  context.after(() => removeFolder(folder));
  return join(folder, name);
}

/** A CSV reader of its own: cells with quotes, commas and line breaks. */
function parseCsv(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  for (const [, quoted, bare = '', end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)/g)) {
    row.push(quoted === undefined ? bare : quoted.replaceAll('""', '"'));
    if (end === '\r\n') {
      rows.push(row);
      row = [];
    }
  }
  return rows;
}

/** A store that stops the command after some pages, or dies there. */
function interrupting(store: Store, pages: number, interrupt: () => void): Store {
  let asked = 0;
  const events = async (tenantId: string, query: EventQuery): ReturnType<Store['events']> => {
    const page = await store.events(tenantId, query);
    asked += 1;
    if (asked === pages) interrupt();
    return page;
  };
  return Object.assign(Object.create(store) as Store, {
    events,
    ledger: store.ledger.bind(store),
    tenants: store.tenants.bind(store),
    close: store.close.bind(store),
  });
}

function interruptedAfterTwo({ shell, stopping }: TestShell): (config: Config) => Promise<Store> {
  return async (config) => {
    const store = await shell.openStore(config);
    assert.ok(store !== undefined);
    return interrupting(store, 2, () => stopping.abort());
  };
}

suite('sluice export', () => {
  test('says that requests wait in the log, where the store is gone or made again', async (context) => {
    const folder = openDataFolder(context);
    await folder.append([{ users: [{ identifiers: { user_id: 'ada' } }] }]);
    const args = ['--format', 'csv', '--out', join(folder.data, 'events.csv')];
    assert.match(await refusal(runExport, args, folder.shell()), /There is no store in .*, only a log/);
    await folder.withStore(async () => undefined);
    assert.match(await refusal(runExport, args, folder.shell()), /can be read yet: 1 user waits in the log/);
  });

  test('ndjson has every event once, newest first, in the shape of the API', async (context) => {
    const folder = await filledFolder(context);
    const out = outFile(context, 'events.ndjson');
    const ran = await run(runExport, ['--format', 'ndjson', '--out', out], folder.shell());
    assert.equal(ran.code, 0);
    assert.match(ran.out, /^3,500 events in /);
    const events = await eventsOf(folder);
    const rows = readFileSync(out, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    assert.deepEqual(
      rows.map(({ id }) => id),
      events.map(({ id }) => id),
    );
    assert.equal(rows.length, EVENTS);
    assert.deepEqual(Object.keys(rows[0] ?? {}), [
      'id',
      'event_name',
      'timestamp',
      'received_at',
      'revenue',
      'event_value',
      'properties',
      'profile_id',
      'trace_id',
      'userIndex',
      'key_id',
    ]);
    assert.ok(!existsSync(`${out}.part`) && !existsSync(`${out}.part.state`));
    assert.equal(statSync(out).mode & 0o077, 0);
  });

  test('raw csv can be read back cell for cell', async (context) => {
    const folder = await filledFolder(context);
    const { out } = await run(runExport, ['--format', 'csv', '--raw'], folder.shell());
    const [header, ...rows] = parseCsv(out);
    const events = await eventsOf(folder);
    assert.equal(header?.[6], 'properties');
    assert.equal(rows.length, EVENTS);
    for (const [index, row] of rows.entries()) {
      const event = events[index];
      assert.ok(event !== undefined);
      assert.equal(row[0], event.id);
      assert.equal(row[1], event.eventName);
      assert.equal(row[2], new Date(event.timestamp).toISOString());
      assert.equal(row[4], event.revenue ?? '');
      assert.equal(row[6], event.properties);
      assert.equal(row[7], event.profileId ?? '');
    }
  });

  test('any text survives raw csv, formulas included', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'binary' }), { minLength: 1 }), (texts) => {
        assert.deepEqual(parseCsv(lineOf(texts, true)), [texts]);
      }),
    );
    assert.equal(lineOf(['=1+1', null, ''], true), '=1+1,,""\r\n');
  });

  for (const [what, text, cell] of [
    ['a formula', '=cmd|calc!A0', "'=cmd|calc!A0"],
    ['a plus', '+1', "'+1"],
    ['a minus', '-1+1', "'-1+1"],
    ['an at sign', '@SUM(A1)', "'@SUM(A1)"],
    ['a tab', '\t=1', "'\t'=1"],
    ['a carriage return', '\r=1', "'\r'=1"],
    ['a line break and a semicolon', '\n=1+1;x', "'\n'=1+1;x"],
    ['a tab before something harmless', '\tx', "'\tx"],
    ['a byte order mark', '\ufeff=1', "'\ufeff=1"],
    ['blanks', ' \u00a0\u3000=1', "' \u00a0\u3000=1"],
    ['a blank without width', '\u200b@x', "'\u200b@x"],
    ['a wide sign', '＝1', "'＝1"],
    ['a formula behind a semicolon', '{"a":"x;=1"}', `{"a":"x;'=1"}`],
    ['a control character', 'a\u0000b\u001bc\u009b', 'a\\u0000b\\u001bc\\u009b'],
    ['a bidirectional override', 'invoice\u202excod.exe', 'invoice\\u202excod.exe'],
    ['isolates', '\u2066x\u2069', '\\u2066x\\u2069'],
    ['nothing to hide', 'a=b; c-d, "e"@f +1', 'a=b; c-d, "e"@f +1'],
    ['an apostrophe', "'=1", "'=1"],
    ['several lines', 'a\r\nb', 'a\r\nb'],
    ['an empty text', '', ''],
  ] as const) {
    test(`in csv, text that begins with or holds ${what} is shown and not run`, () => {
      assert.deepEqual(parseCsv(lineOf([text], false)), [[cell]]);
    });
  }

  test('whatever the text, no cell of a csv begins like a formula, by commas or by semicolons', () => {
    const piece = fc.constantFrom(
      '=',
      '+',
      '-',
      '@',
      ';',
      ',',
      '"',
      '\t',
      '\r',
      '\n',
      ' ',
      '\ufeff',
      '\u200b',
      "'",
      'x',
    );
    fc.assert(
      fc.property(fc.array(fc.string({ unit: piece }), { minLength: 1 }), (texts) => {
        for (const cell of parseCsv(lineOf(texts, false)).flat()) {
          assert.doesNotMatch(cell, /^[\t\r\n]/);
          for (const part of cell.split(';')) assert.doesNotMatch(part, /^[\s\p{Cf}]*[=+\-@]/u);
        }
      }),
    );
  });

  test('numbers and times in csv are never altered, and ndjson and parquet take no --raw', async (context) => {
    assert.equal(
      csvLine(
        [
          { kind: 'number', cell: () => '-12.5' },
          { kind: 'time', cell: () => 0 },
        ],
        null,
        false,
      ),
      '-12.5,1970-01-01T00:00:00.000Z\r\n',
    );
    const folder = await filledFolder(context);
    assert.match(
      await refusal(runExport, ['--format', 'ndjson', '--raw'], folder.shell()),
      /--raw is for csv; ndjson always/,
    );
  });

  test('parquet reads back as what the store holds, with times as timestamps', async (context) => {
    const folder = await filledFolder(context);
    const out = outFile(context, 'events.parquet');
    const { code } = await run(runExport, ['--format', 'parquet', '--out', out], folder.shell());
    assert.equal(code, 0);
    assert.equal(statSync(out).mode & 0o077, 0);
    const file = await asyncBufferFromFile(out);
    const rows = await parquetReadObjects({ file });
    const events = await eventsOf(folder);
    assert.equal(rows.length, EVENTS);
    for (const [index, row] of rows.entries()) {
      const event = events[index];
      assert.ok(event !== undefined);
      assert.deepEqual(row, {
        id: event.id,
        event_name: event.eventName,
        timestamp: new Date(event.timestamp),
        received_at: new Date(event.receivedAt),
        revenue: event.revenue === null ? null : Number(event.revenue),
        event_value: null,
        properties: event.properties,
        profile_id: event.profileId,
        trace_id: event.traceId,
        userIndex: event.userIndex,
        key_id: event.keyId,
      });
    }
    const { schema } = await parquetMetadataAsync(file);
    assert.equal(schema.find(({ name }) => name === 'timestamp')?.converted_type, 'TIMESTAMP_MILLIS');
  });

  test('profiles come in all formats, too', async (context) => {
    const folder = await filledFolder(context);
    const people = EVENTS / 5 - 100;
    const out = outFile(context, 'profiles.parquet');
    await run(runExport, ['--format', 'parquet', '--what', 'profiles', '--out', out], folder.shell());
    const rows = await parquetReadObjects({ file: await asyncBufferFromFile(out) });
    assert.equal(rows.length, people);
    assert.equal(rows[0]?.['user_id'], '["u1"]');
    assert.equal(rows[0]?.['user_properties'], '{"n":1}');
    assert.equal(rows[0]?.['event_count'], 5);
    const { out: ndjson } = await run(runExport, ['--format', 'ndjson', '--what', 'profiles'], folder.shell());
    assert.equal(ndjson.trimEnd().split('\n').length, people);
    const { out: csv } = await run(runExport, ['--format', 'csv', '--what', 'profiles'], folder.shell());
    assert.equal(parseCsv(csv).length, people + 1);
  });

  test('an empty export is a whole file', async (context) => {
    const folder = await filledFolder(context);
    for (const format of ['ndjson', 'csv', 'parquet']) {
      const out = outFile(context, `none.${format}`);
      const { code } = await run(runExport, ['--format', format, '--event', 'never', '--out', out], folder.shell());
      assert.equal(code, 0);
      assert.ok(existsSync(out));
      if (format === 'parquet')
        assert.deepEqual(await parquetReadObjects({ file: await asyncBufferFromFile(out) }), []);
    }
  });

  test('--event, --from and --to choose', async (context) => {
    const folder = await filledFolder(context);
    const { out } = await run(runExport, ['--format', 'ndjson', '--event', 'paid', '--from', '1h'], folder.shell());
    assert.equal(out, '');
    const args = ['--format', 'ndjson', '--event', 'paid', '--from', '24h', '--to', '2026-11-14T12:10Z'];
    const { out: first } = await run(runExport, args, folder.shell());
    assert.equal(first.trimEnd().split('\n').length, 10);
  });

  for (const format of ['ndjson', 'csv']) {
    test(`an interrupted ${format} export continues and ends as if nothing had happened`, async (context) => {
      const folder = await filledFolder(context);
      const whole = outFile(context, `whole.${format}`);
      await run(runExport, ['--format', format, '--out', whole], folder.shell());

      const out = outFile(context, `events.${format}`);
      const shell = folder.shell();
      const openStore = interruptedAfterTwo(shell);
      const stopped = { ...shell, shell: { ...shell.shell, openStore } };
      assert.match(await refusal(runExport, ['--format', format, '--out', out], stopped), /run the same command again/);
      assert.ok(!existsSync(out) && existsSync(`${out}.part.state`));
      // As a crash leaves it: more was written than was noted down.
      writeFileSync(`${out}.part`, 'half a li', { flag: 'a' });

      assert.match(
        await refusal(runExport, ['--format', format, '--out', out, '--event', 'paid'], folder.shell()),
        /interrupted export with other options/,
      );
      const { code, err } = await run(runExport, ['--format', format, '--out', out], folder.shell());
      assert.equal(code, 0);
      assert.match(err, /Continuing after 2,000 rows/);
      assert.ok(readFileSync(out).equals(readFileSync(whole)));
      assert.ok(!existsSync(`${out}.part.state`));
    });
  }

  test('an export is not continued once the tracking plan marks other data as personal', async (context) => {
    const folder = await filledFolder(context);
    const args = ['--format', 'ndjson', '--out', outFile(context, 'events.ndjson')];
    const shell = folder.shell();
    await refusal(runExport, args, { ...shell, shell: { ...shell.shell, openStore: interruptedAfterTwo(shell) } });
    await pushPlan(folder, { events: { paid: { schema: { properties: { note: { 'x-personal': true } } } } } });
    assert.match(await refusal(runExport, args, folder.shell()), /no longer marks the same data .* --restart/);
    const { code } = await run(runExport, [...args, '--restart'], folder.shell());
    assert.equal(code, 0);
    const paid = readFileSync(args[3] as string, 'utf8')
      .split('\n')
      .filter((line) => line.includes('"paid"'));
    assert.deepEqual(
      paid.filter((line) => line.includes('break')),
      [],
    );
  });

  test('an export that is interrupted to parquet leaves nothing behind', async (context) => {
    const folder = await filledFolder(context);
    const out = outFile(context, 'events.parquet');
    const shell = folder.shell();
    const openStore = interruptedAfterTwo(shell);
    const stopped = { ...shell, shell: { ...shell.shell, openStore } };
    assert.match(await refusal(runExport, ['--format', 'parquet', '--out', out], stopped), /starts over/);
    assert.ok(!existsSync(out) && !existsSync(`${out}.part`));
  });

  test('what is left of another export is in the way of no other, and a lost part is reported', async (context) => {
    const folder = await filledFolder(context);
    const out = outFile(context, 'events');
    const shell = folder.shell();
    const openStore = interruptedAfterTwo(shell);
    await refusal(runExport, ['--format', 'csv', '--out', out], { ...shell, shell: { ...shell.shell, openStore } });
    assert.match(await refusal(runExport, ['--format', 'parquet', '--out', out], folder.shell()), /with other options/);
    writeFileSync(`${out}.part`, 'cut');
    assert.match(await refusal(runExport, ['--format', 'csv', '--out', out], folder.shell()), /shorter than it was/);
    const { code } = await run(runExport, ['--format', 'parquet', '--out', out, '--restart'], folder.shell());
    assert.equal(code, 0);
    assert.ok(!existsSync(`${out}.part`) && !existsSync(`${out}.part.state`));
  });

  test('a file that cannot be written is reported in plain words', async (context) => {
    const folder = await filledFolder(context);
    for (const format of ['ndjson', 'parquet']) {
      const out = join(folder.data, 'x'.repeat(300));
      const words = await refusal(runExport, ['--format', format, '--out', out], folder.shell());
      assert.match(words, /^Stopped by an error: ENAMETOOLONG/);
      const elsewhere = join(folder.data, 'no', 'such', 'file');
      assert.match(
        await refusal(runExport, ['--format', format, '--out', elsewhere], folder.shell()),
        /The folder .*no\/such for .* does not exist\. .* mkdir -p/,
      );
    }
  });

  test('a file that is there is replaced only when that is asked for', async (context) => {
    const folder = await filledFolder(context);
    const out = outFile(context, 'events.ndjson');
    writeFileSync(out, 'mine');
    assert.match(await refusal(runExport, ['--format', 'ndjson', '--out', out], folder.shell()), /--overwrite/);
    assert.equal(readFileSync(out, 'utf8'), 'mine');
    const { code } = await run(runExport, ['--format', 'ndjson', '--out', out, '--overwrite'], folder.shell());
    assert.equal(code, 0);
    const words = await refusal(runExport, ['--format', 'csv', '--out', dirname(out), '--overwrite'], folder.shell());
    assert.match(words, /is a folder\. Name a file: --out ".*export\.csv"/);
  });

  test('all mistakes are reported at once', async () => {
    const args = ['--format', 'parqet', '--what', 'profiles', '--from', 'then', '--event', 'x'];
    const words = await refusal(runExport, args, testShell({}));
    assert.match(words, /did you mean parquet/);
    assert.match(words, /--from is "then"/);
    assert.match(words, /--event choose among events/);
    assert.match(await refusal(runExport, ['--format', 'parquet'], testShell({})), /parquet needs a file/);
  });
});
