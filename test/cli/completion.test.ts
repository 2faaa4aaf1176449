/**
 * Shell completion: what the program offers after some words, and the scripts that ask it. The script for bash runs in a
 * real bash, as readline would call it; those for zsh and fish are read by those shells where they are installed.
 */

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { promisify } from 'node:util';
import { ALL_COMMANDS, type Command, COMPLETION_SHELLS } from '../../src/cli/commands.ts';
import { candidatesFor, completionScript, runCompletion } from '../../src/cli/completion.ts';
import { OperatorError } from '../../src/errors.ts';
import { removeFolder, temporaryFolder } from '../server.ts';

const run = promisify(execFile);

const PROGRAM = [process.execPath, join(import.meta.dirname, '..', '..', 'bin', 'sluice.js')];

/** As a shell offers them: without summaries, and only those that begin with the last word. */
function offered(...words: string[]): string[] {
  const names = candidatesFor(words).map((line) => line.split('\t')[0] ?? '');
  return names.filter((name) => name.startsWith(words.at(-1) ?? ''));
}

suite('What completion offers', () => {
  test('commands and subcommands', () => {
    assert.deepEqual(offered(''), [...Object.keys(ALL_COMMANDS), '--version', '--help']);
    assert.deepEqual(offered('ex'), ['export']);
    assert.deepEqual(offered('keys', 'r'), ['roll', 'revoke']);
    assert.deepEqual(offered('help', 'ex'), ['export']);
    assert.deepEqual(offered('help', 'keys', ''), ['create', 'list', 'edit', 'roll', 'revoke']);
    assert.deepEqual(offered('completion', ''), ['bash', 'zsh', 'fish', '--help']);
    assert.deepEqual(offered('profile', 'user'), ['user_id=']);
    assert.deepEqual(offered('constructor', 'ex'), ['export']);
  });

  test('with what each does', () => {
    assert.ok(candidatesFor(['']).includes(`export\t${ALL_COMMANDS['export']?.summary}`));
    assert.ok(candidatesFor(['keys', '']).includes('list\tlists the API keys, revoked and expired ones included'));
    assert.ok(candidatesFor(['export', '']).includes('--overwrite\treplace FILE if it exists'));
  });

  test('the flags of the command, and of no other', () => {
    const check = (commands: Readonly<Record<string, Command>>, above: readonly string[]): void => {
      for (const [name, { flags, commands: below = {} }] of Object.entries(commands)) {
        const words = [...above, name];
        if (name === 'help') continue;
        assert.deepEqual(offered(...words, '--'), [...Object.keys(flags).map((flag) => `--${flag}`), '--help']);
        check(below, words);
      }
    };
    check(ALL_COMMANDS, []);
    assert.deepEqual(offered('keys', 'roll', 'key_1', '--ov'), ['--overlap']);
    assert.deepEqual(offered('export', '--event', 'keys', '--o'), ['--out', '--overwrite']);
    assert.deepEqual(offered('export', '--json', '--o'), ['--out', '--overwrite']);
  });

  test('the values that a flag is limited to, in the next word or after an equals sign', () => {
    const formats = ['ndjson', 'csv', 'parquet'];
    assert.deepEqual(offered('export', '--format', ''), formats);
    assert.deepEqual(offered('export', '--format=c'), ['--format=csv']);
    // Three words in bash.
    assert.deepEqual(offered('export', '--format', '=', 'c'), ['csv']);
    assert.deepEqual(candidatesFor(['export', '--format', '=']), formats);
    assert.deepEqual(offered('keys', 'create', '--kind', 'p'), ['publishable']);
    assert.deepEqual(offered('tail', '--env', 'd'), ['development', 'dev']);
    assert.deepEqual(offered('serve', '--role', 'e'), ['edge']);
    assert.deepEqual(offered('export', '--event', ''), []);
    assert.deepEqual(offered('export', '--format=csv', '--wh'), ['--what']);
    assert.deepEqual(offered('send', 'format', '--em'), ['--email'], 'a word without dashes is no flag');
  });

  test('that files or folders follow', () => {
    assert.deepEqual(candidatesFor(['export', '--out', 'us']), [':files']);
    assert.deepEqual(candidatesFor(['export', '--out=us']), [':files']);
    assert.deepEqual(candidatesFor(['serve', '--data', '']), [':folders']);
    assert.equal(candidatesFor(['import', 'users']).at(-1), ':files');
    assert.ok(!candidatesFor(['import', '--']).includes(':files'));
    assert.ok(!candidatesFor(['trace', '']).includes(':files'));
  });
});

suite('Completion in bash', () => {
  const folder = temporaryFolder();
  before(() => {
    writeFileSync(join(folder, 'sluice.bash'), completionScript('bash', PROGRAM));
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

  test('commands, flags and values', async () => {
    assert.deepEqual(await complete(''), [...Object.keys(ALL_COMMANDS), '--version', '--help']);
    assert.deepEqual(await complete('keys', 'r'), ['roll', 'revoke']);
    assert.deepEqual(await complete('profile', 'user'), ['user_id=']);
    assert.deepEqual(await complete('export', '--o'), ['--out', '--overwrite']);
    assert.deepEqual(await complete('export', '--help'), ['--help'], 'the help itself is not shown');
    assert.deepEqual(await complete('export', '--format', '=', 'c'), ['csv']);
    assert.deepEqual(await complete('export', '--format', '='), ['ndjson', 'csv', 'parquet']);
    assert.deepEqual(await complete('export', '--event', ''), []);
  });

  test('files and folders, also with blanks in their names', async () => {
    assert.deepEqual(await complete('export', '--out', 'us'), ['users of may.ndjson']);
    assert.deepEqual(await complete('import', 'users'), ['users of may.ndjson']);
    assert.deepEqual(await complete('serve', '--data', ''), ['two words']);
  });

  test('calls the program that printed it, also from a folder with blanks and quotes in its name', async () => {
    const { stdout } = await run(process.execPath, [PROGRAM[1] ?? '', 'completion', 'bash']);
    assert.equal(stdout, completionScript('bash', PROGRAM));
    assert.ok(
      completionScript('bash', ['/no de', "/it's/sluice.js"]).includes(String.raw`'/no de' '/it'\''s/sluice.js' `),
    );
  });
});

for (const shell of COMPLETION_SHELLS) {
  test(`${shell} can read its script, where it is installed`, () => {
    const input = completionScript(shell, PROGRAM);
    assert.ok(input.includes("sluice.js' completion --words -- "));
    const { error, status, stderr } = spawnSync(shell, ['-n'], { input, encoding: 'utf8' });
    const isMissing = error !== undefined && 'code' in error && error.code === 'ENOENT';
    if (!isMissing) assert.deepEqual([status, stderr], [0, '']);
  });
}

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
