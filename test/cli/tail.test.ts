/**
 * `sluice tail`: events as they are processed.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { runTail } from '../../src/cli/tail.ts';
import { eventually } from '../server.ts';
import { openDataFolder, refusal, testShell } from './data-shell.ts';

function userWith(...names: string[]): object {
  return {
    identifiers: { user_id: 'ada' },
    events: names.map((event_name) => ({ event_name, revenue: 9.5, at: 'x' })),
  };
}

suite('sluice tail', () => {
  test('shows what comes in after its start, in order, and ends when it is stopped', async (context) => {
    const folder = openDataFolder(context);
    await folder.send([{ users: [userWith('before')] }]);
    const tail = folder.shell();
    const ended = runTail(['--json'], tail.shell);
    // Sent until it shows: from outside it is unknown when it has begun to look.
    let sent = 0;
    await eventually('it looks', async () => {
      await folder.send([{ users: [userWith(`probe-${sent++}`)] }]);
      return tail.out() !== '';
    });
    await folder.send([{ users: [userWith('first', 'second')] }, { users: [userWith('third')] }]);
    await eventually('the last one shows', () => tail.out().includes('"third"'));
    tail.stopping.abort();
    assert.equal(await ended, 0);
    const names = tail
      .out()
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { event_name: string }).event_name);
    assert.ok(!names.includes('before'));
    assert.deepEqual(names.slice(-3), ['first', 'second', 'third']);
    assert.equal(new Set(names).size, names.length);
  });

  test('--since begins with the past, oldest first, and --event leaves the others out', async (context) => {
    const folder = openDataFolder(context);
    const users = [
      { identifiers: { user_id: 'ada' }, events: [{ event_name: 'paid', n: 1 }, { event_name: 'seen' }] },
      { identifiers: { user_id: 'null' }, events: [{ event_name: 'paid', n: 2 }] },
    ];
    await folder.send([{ users, receivedAt: Date.UTC(2026, 10, 15, 11, 50) }]);
    const tail = folder.shell();
    const ended = runTail(['--since', '1h', '--event', 'paid'], tail.shell);
    await eventually('both show', () => tail.out().split('\n').length === 3);
    tail.stopping.abort();
    assert.equal(await ended, 0);
    assert.match(tail.out(), /paid +[0-9a-f-]{36} +\{"n":1\}\n.*paid +– +\{"n":2\}\n$/);
  });

  test('a line is cut to the width of the terminal', async (context) => {
    const folder = openDataFolder(context);
    const events = [{ event_name: 'x'.repeat(60), text: 'y'.repeat(500) }];
    await folder.send([{ users: [{ identifiers: { user_id: 'ada' }, events }] }]);
    for (const columns of [80, 100, 160]) {
      const tail = folder.shell({ outTerminal: { isTty: false, columns } });
      const ended = runTail(['--since', '2h'], tail.shell);
      await eventually('it shows', () => tail.out() !== '');
      tail.stopping.abort();
      await ended;
      const line = tail.out().trimEnd();
      assert.ok(columns === 80 ? line.length <= columns : line.length === columns, `${line.length} in ${columns}`);
      assert.match(line, / [0-9a-f]{8}-[0-9a-f-]{27}/);
      assert.equal(line.includes('"text":"y'), columns > 80);
    }
  });

  test('before anything was sent it says so, and waits for the first event', async (context) => {
    const folder = openDataFolder(context);
    await folder.process();
    const tail = folder.shell();
    const ended = runTail([], tail.shell);
    await eventually('it says so', () => tail.err().includes('No events yet; waiting for the first one'));
    tail.stopping.abort();
    assert.equal(await ended, 0);
  });

  test('all mistakes are reported at once', async () => {
    const words = await refusal(runTail, ['--since', 'yesterday', '--evnt', 'x', 'paid'], testShell({}));
    assert.match(words, /--since is "yesterday"/);
    assert.match(words, /did you mean --event/);
    assert.match(words, /--event "paid"/);
  });
});
