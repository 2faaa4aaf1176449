/**
 * An older commit of this project, checked out beside this one for `--against`: a git worktree in a temporary folder,
 * with this checkout's node_modules when package-lock.json is the same and with its own otherwise. Only its server is
 * started. `close` removes it; it is synchronous, so that Ctrl-C can call it too.
 */

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PROJECT } from './servers.ts';

export class OldCommit {
  /** What the user called it, and the abbreviated hash unless that is the same. */
  readonly name: string;
  readonly root: string;
  private readonly folder: string;

  private constructor(name: string, folder: string) {
    this.name = name;
    this.folder = folder;
    this.root = join(folder, 'sluice');
  }

  /** Throws with a message for the user when there is no such commit. */
  static open(commit: string): OldCommit {
    const hash = hashOf(commit);
    const name = hash.startsWith(commit) ? commit : `${commit} (${hash.slice(0, 7)})`;
    const old = new OldCommit(name, mkdtempSync(join(tmpdir(), 'sluice-bench-')));
    try {
      git('worktree', 'add', '--detach', old.root, hash);
      old.provideModules();
    } catch (error) {
      old.close();
      throw error;
    }
    return old;
  }

  close(): void {
    // Not through `git`, which throws: what could not be removed must not hide why the run ended.
    spawnSync('git', ['worktree', 'remove', '--force', this.root], { cwd: PROJECT });
    rmSync(this.folder, { recursive: true, force: true });
    spawnSync('git', ['worktree', 'prune'], { cwd: PROJECT });
  }

  private provideModules(): void {
    const lockOf = (root: string): string => readFileSync(join(root, 'package-lock.json'), 'utf8');
    if (lockOf(this.root) === lockOf(PROJECT)) {
      symlinkSync(join(PROJECT, 'node_modules'), join(this.root, 'node_modules'));
      return;
    }
    // Without scripts: they build the dashboard and fetch Node, and neither is used here.
    execFileSync('npm', ['ci', '--ignore-scripts'], { cwd: this.root, stdio: ['ignore', 'ignore', 'pipe'] });
  }
}

/** This checkout, as it is now. */
export function nameOfThisCheckout(): string {
  const hash = git('rev-parse', '--short=7', 'HEAD').trim();
  const isChanged = git('status', '--porcelain', '--untracked-files=no') !== '';
  return `this checkout (${hash}${isChanged ? ' with changes' : ''})`;
}

function hashOf(commit: string): string {
  try {
    return git('rev-parse', '--verify', '--end-of-options', `${commit}^{commit}`).trim();
  } catch {
    throw new Error(
      `--against ${commit}: git knows no such commit here. Give a commit, tag or branch of this repository ` +
        '("git log --oneline" lists commits); in a shallow clone run "git fetch --unshallow" first.',
    );
  }
}

function git(...words: readonly string[]): string {
  return execFileSync('git', words, { cwd: PROJECT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}
