/** `npm run bench -- NAME --against COMMIT`: how the older commit is provided, and how two sides are compared. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { compare, formatComparisons } from '../../bench/against.ts';
import { OldCommit } from '../../bench/old-commit.ts';
import type { Outcome } from '../../bench/report.ts';
import { PROJECT } from '../../bench/servers.ts';

const QUIET = { cores: 1000, otherCores: 0 };
const BUSY = { cores: 1000, otherCores: 1 };

function outcome(value: number, noise = QUIET): Outcome {
  return {
    name: 'edge-1',
    ours: '',
    figures: [{ name: 'throughput', value, unit: 'users/s', better: 'higher' }],
    noise,
    data: null,
  };
}

suite('comparing with an older commit', () => {
  test('an older commit is checked out with its modules and removed afterwards', () => {
    const old = OldCommit.open('HEAD');
    const worktrees = (): string => execFileSync('git', ['worktree', 'list'], { cwd: PROJECT, encoding: 'utf8' });
    try {
      assert.ok(existsSync(join(old.root, 'src', 'main.ts')));
      assert.ok(existsSync(join(old.root, 'node_modules', 'fastify')));
      assert.match(old.name, /^HEAD \([0-9a-f]{7}\)$/);
      assert.ok(worktrees().includes(old.root));
    } finally {
      old.close();
    }
    assert.ok(!existsSync(old.root));
    assert.ok(!worktrees().includes(old.root));
    assert.ok(existsSync(join(PROJECT, 'node_modules', 'fastify')), 'the modules of this checkout stay');
  });

  test('an unknown commit is an error that says what to do', () => {
    assert.throws(
      () => OldCommit.open('no-such-commit'),
      /no-such-commit: git knows no such commit here\. Give a commit/,
    );
    assert.throws(() => OldCommit.open('--all'), /git knows no such commit here/);
  });

  test('the ratio is the median over rounds, without those in which the machine was busy', () => {
    const [row] = compare([
      { new: outcome(110), old: outcome(100) },
      { new: outcome(500, BUSY), old: outcome(100) },
      { new: outcome(100), old: outcome(100) },
      { new: outcome(360), old: outcome(300) },
    ]);
    assert.deepEqual(row?.ratios, [1.1, 5, 1, 1.2]);
    assert.deepEqual(row.noisy, [false, true, false, false]);
    assert.equal(row.ratio, 1.1);
    const text = formatComparisons([row], { new: 'this checkout', old: '1c60ab7' });
    assert.match(text, /1\.10, 5\.00\*, 1\.00, 1\.20/);
    assert.match(text, /edge-1: 1 of 4 rounds were disturbed and are not in the median ratio/);
  });

  test('a comparison that is mostly disturbed says that it is noisy', () => {
    const rows = compare([
      { new: outcome(100, BUSY), old: outcome(100) },
      { new: outcome(100), old: outcome(50, BUSY) },
    ]);
    assert.equal(rows[0]?.ratio, 1.5);
    assert.match(formatComparisons(rows, { new: 'this checkout', old: 'main' }), /edge-1: NOISY, 2 of 2 rounds/);
  });
});
