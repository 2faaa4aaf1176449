/** Exports and tail leave out what the tracking plan marks as personal, unless it is asked for. */

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { runExport } from '../../src/cli/export.ts';
import { runTail } from '../../src/cli/tail.ts';
import { eventually } from '../server.ts';
import { type DataFolder, openDataFolder, pushPlan, run } from './data-shell.ts';

const mark = (name: string): object => ({ schema: { properties: { [name]: { 'x-personal': true } } } });
const PLAN = { events: { paid: mark('card') }, user_properties: mark('income'), profile_fields: mark('city') };

async function folderWithPlan(context: TestContext): Promise<DataFolder> {
  const folder = openDataFolder(context);
  const user = {
    identifiers: { user_id: 'ada', city: 'Oslo secret' },
    user_properties: { income: 'high secret', plan: 'pro' },
    events: [{ event_name: 'paid', card: '4111 secret', total: 12 }],
  };
  await folder.send([{ users: [user] }]);
  await pushPlan(folder, PLAN);
  return folder;
}

test('exports mask personal data, and --personal shows it', async (context) => {
  const folder = await folderWithPlan(context);
  for (const [what, others] of [
    ['events', ['"total":12']],
    ['profiles', ['ada', 'pro']],
  ] as const) {
    for (const format of ['ndjson', 'csv']) {
      const args = ['--format', format, '--what', what];
      const masked = await run(runExport, args, folder.shell());
      assert.match(masked.out, /•••/);
      assert.doesNotMatch(masked.out, /secret/);
      for (const other of others) assert.ok(masked.out.replaceAll('""', '"').includes(other), masked.out);
      const shown = await run(runExport, [...args, '--personal'], folder.shell());
      assert.match(shown.out, /secret/);
      assert.doesNotMatch(shown.out, /•••/);
    }
  }
});

test('tail masks personal data, and --personal shows it', async (context) => {
  const folder = await folderWithPlan(context);
  const tail = async (...args: string[]): Promise<string> => {
    const shell = folder.shell();
    const following = run(runTail, ['--since', '2d', ...args], shell);
    await eventually('it shows', () => shell.out() !== '');
    shell.stopping.abort();
    return (await following).out;
  };
  const masked = await tail('--json');
  assert.match(masked, /"card":"•••"/);
  assert.doesNotMatch(masked, /secret/);
  assert.match(await tail('--json', '--personal'), /4111 secret/);
});
