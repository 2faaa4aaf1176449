/**
 * Shell completion: the bash script runs in a real bash, as readline would call it. The scripts for zsh and fish are
 * read by those shells where they are installed, and are checked for every command and flag in any case.
 */

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { promisify } from 'node:util';
import { ALL_COMMANDS, type Command, COMPLETION_SHELLS } from '../../src/cli/commands.ts';
import { completionScript, runCompletion } from '../../src/cli/completion.ts';
import { OperatorError } from '../../src/errors.ts';
import { removeFolder, temporaryFolder } from '../server.ts';

const run = promisify(execFile);

suite('Completion in bash', () => {
  const folder = temporaryFolder();
  before(() => {
    writeFileSync(join(folder, 'sluice.bash'), completionScript('bash'));
    mkdirSync(join(folder, 'files', 'two words'), { recursive: true });
    writeFileSync(join(folder, 'files', 'users of may.ndjson'), '');
  });
  after(() => removeFolder(folder));

  /** What is offered for the last of the words, which bash has split already. */
  async function complete(...words: string[]): Promise<string[]> {
    const script = `
      set -u
      source ../sluice.bash
      [[ $(complete -p sluice) == 'complete -F _sluice sluice' ]] || exit 9
      COMP_WORDS=(sluice "$@") COMP_CWORD=$#
      _sluice
      if ((\${#COMPREPLY[@]} > 0)); then printf '%s\\n' "\${COMPREPLY[@]}"; fi`;
    const options = { cwd: join(folder, 'files'), env: { PATH: process.env['PATH'] } };
    const { stdout } = await run('bash', ['--norc', '-c', script, 'bash', ...words], options);
    return stdout.split('\n').filter((line) => line !== '');
  }

  test('commands and subcommands', async () => {
    assert.deepEqual(await complete(''), [...Object.keys(ALL_COMMANDS), '--help', '--version']);
    assert.deepEqual(await complete('ex'), ['export']);
    assert.deepEqual(await complete('keys', 'r'), ['roll', 'revoke']);
    assert.deepEqual(await complete('help', 'ex'), ['export']);
    assert.deepEqual(await complete('help', 'keys', ''), ['create', 'list', 'edit', 'roll', 'revoke']);
    assert.deepEqual(await complete('completion', ''), ['bash', 'zsh', 'fish', '--help']);
    assert.deepEqual(await complete('profile', 'user'), ['user_id=']);
  });

  test('the flags of the command, and of no other', async () => {
    for (const [name, { flags }] of Object.entries(ALL_COMMANDS)) {
      if (name === 'help') continue;
      assert.deepEqual(await complete(name, '--'), [...Object.keys(flags).map((flag) => `--${flag}`), '--help']);
    }
    assert.deepEqual(await complete('keys', 'roll', 'key_1', '--ov'), ['--overlap']);
    assert.deepEqual(await complete('export', '--event', 'keys', '--o'), ['--out', '--overwrite']);
  });

  test('the values that a flag is limited to, after a space and after an equals sign', async () => {
    assert.deepEqual(await complete('export', '--format', ''), ['ndjson', 'csv', 'parquet']);
    assert.deepEqual(await complete('export', '--format', '=', 'c'), ['csv']);
    assert.deepEqual(await complete('export', '--format', '='), ['ndjson', 'csv', 'parquet']);
    assert.deepEqual(await complete('keys', 'create', '--kind', 'p'), ['publishable']);
    assert.deepEqual(await complete('tail', '--env', 'd'), ['development', 'dev']);
    assert.deepEqual(await complete('serve', '--role', 'e'), ['edge']);
    assert.deepEqual(await complete('export', '--event', ''), []);
  });

  test('files and folders, also with blanks in their names', async () => {
    assert.deepEqual(await complete('export', '--out', 'us'), ['users of may.ndjson']);
    assert.deepEqual(await complete('import', 'users'), ['users of may.ndjson']);
    assert.deepEqual(await complete('serve', '--data', ''), ['two words']);
  });
});

suite('The scripts for other shells', () => {
  for (const shell of COMPLETION_SHELLS) {
    test(`every command, flag and value is in the script for ${shell}`, () => {
      const script = completionScript(shell);
      const check = (commands: Readonly<Record<string, Command>>): void => {
        for (const [name, { flags, commands: below = {} }] of Object.entries(commands)) {
          assert.match(script, new RegExp(`\\b${name}\\b`));
          for (const [flag, { choices = [] }] of Object.entries(flags)) {
            assert.match(script, new RegExp(`(--|-l )${flag}\\b`), `${name} ${flag}`);
            if (choices.length > 0) assert.ok(script.includes(choices.join(' ')), `${name} ${flag}`);
          }
          check(below);
        }
      };
      check(ALL_COMMANDS);
    });

    test(`${shell} can read its script, where it is installed`, () => {
      const { error, status, stderr } = spawnSync(shell, ['-n'], { input: completionScript(shell), encoding: 'utf8' });
      const isMissing = error !== undefined && 'code' in error && error.code === 'ENOENT';
      if (!isMissing) assert.deepEqual([status, stderr], [0, '']);
    });
  }
});

test('a shell that is missing or unknown is reported with those that are supported', async () => {
  const refusal = async (args: readonly string[]): Promise<string> => {
    const error: unknown = await runCompletion(args, { out: () => assert.fail('nothing is printed') }).catch(
      (reason: unknown) => reason,
    );
    assert.ok(error instanceof OperatorError, String(error));
    return error.message;
  };
  assert.match(await refusal([]), /^Invalid arguments:\n {2}- no shell given; expected bash, zsh or fish\n/);
  assert.match(
    await refusal(['bsh']),
    /"bsh" is not a supported shell; expected bash, zsh or fish; did you mean bash\?/,
  );
  assert.match(await refusal(['bash', 'zsh']), /unexpected argument "zsh"/);
});
