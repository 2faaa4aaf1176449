/**
 * Help: complete, true, and readable in 100 columns. It is made from the table of commands, which the commands read
 * their flags by.
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { stripVTControlCharacters } from 'node:util';
import { ALL_COMMANDS, type Command } from '../../src/cli/commands.ts';
import { commandHelp, helpOn, mainHelp, wantsHelp } from '../../src/cli/help.ts';
import { formatSetting, SETTING_NAMES, SETTINGS } from '../../src/config/config.ts';
import { OperatorError } from '../../src/errors.ts';
import { withStdout } from './terminal.ts';

interface Named {
  readonly words: readonly string[];
  readonly command: Command;
}

function* allOf(commands: Readonly<Record<string, Command>>, before: readonly string[] = []): Generator<Named> {
  for (const [name, command] of Object.entries(commands)) {
    const words = [...before, name];
    yield { words, command };
    yield* allOf(command.commands ?? {}, words);
  }
}

const ALL = [...allOf(ALL_COMMANDS)];

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ');
}

test('every setting is in the help of serve with its flag, its variable and its default', () => {
  const text = oneLine(helpOn(['serve']));
  for (const name of SETTING_NAMES) {
    const { flag, kind, env } = SETTINGS[name];
    const preset = formatSetting(name, SETTINGS[name].default) || 'none';
    assert.ok(text.includes(` --${flag} ${kind.placeholder} `), name);
    assert.ok(text.includes(` (${env}, default ${preset})`), name);
  }
});

test('the list names every command, and each has a help of its own, by help and by --help', () => {
  const list = mainHelp();
  for (const { words, command } of ALL) {
    const text = helpOn(words);
    assert.equal(commandHelp(words[0] ?? '', words.slice(1)), text);
    assert.ok(text.startsWith(`sluice ${words.join(' ')}: `), text);
    for (const flag of Object.keys(command.flags)) assert.match(text, new RegExp(`^ {2}--${flag}\\b`, 'm'));
    if (words.length === 1) assert.match(list, new RegExp(`^ {2}${words[0]}\\b`, 'm'));
  }
});

test('the lists say which arguments a command takes, and which may be left out', () => {
  const synopses = [
    'serve [settings]',
    'config [settings]',
    'send EVENT name=value…',
    'resubmit [ID]',
    'help [COMMAND]',
  ];
  for (const synopsis of [...synopses, 'trace ID', 'keys create|list|edit|roll|revoke']) {
    assert.ok(mainHelp().includes(`\n  ${synopsis}`), synopsis);
  }
  for (const name of ['push', 'diff', 'check', 'types']) {
    assert.ok(helpOn(['plan']).includes(`\n  plan ${name} [FILE] `), name);
  }
});

test('the list says how to print the version', () => {
  assert.match(mainHelp(), /^ {2}sluice --version$/m);
});

test('the last line of each names a page and a heading that are there', () => {
  for (const { words } of ALL) {
    const [, page = '', anchor] = /\nDetails: docs\/([a-z]+\.md)(?:#([a-z-]+))?\n$/.exec(helpOn(words)) ?? [];
    const headings = readFileSync(new URL(`../../docs/${page}`, import.meta.url), 'utf8').matchAll(/^#+ (.+)$/gm);
    const anchors = Array.from(headings, ([, heading = '']) => heading.toLowerCase().replaceAll(' ', '-'));
    assert.ok(anchor === undefined || anchors.includes(anchor), `${words.join(' ')}: ${page}#${anchor}`);
  }
});

test('every value that a flag is limited to is in its help', () => {
  for (const { words, command } of ALL) {
    const text = helpOn(words);
    for (const { choices = [] } of Object.values(command.flags)) {
      for (const choice of choices) assert.match(text, new RegExp(`\\b${choice}\\b`), words.join(' '));
    }
  }
});

test('no line is longer than 100 characters or ends in a blank', () => {
  for (const text of [mainHelp(), ...ALL.map(({ words }) => helpOn(words))]) {
    for (const line of text.split('\n')) {
      assert.ok(line.length <= 100, line);
      assert.equal(line, line.trimEnd());
    }
  }
});

test('colour changes no word', () => {
  const texts = (): string[] => [mainHelp(), ...ALL.map(({ words }) => helpOn(words))];
  const plain = withStdout(false, {}, texts);
  const coloured = withStdout(true, {}, texts);
  assert.ok(coloured.every((text, index) => text !== plain[index]));
  assert.deepEqual(coloured.map(stripVTControlCharacters), plain);
});

test('help is wanted wherever --help or -h stands, but not after a lone double dash, and where a subcommand is missing', () => {
  assert.ok(wantsHelp('keys', []));
  assert.ok(!wantsHelp('serve', []));
  assert.ok(wantsHelp('keys', ['create', '--help']));
  assert.ok(wantsHelp('keys', ['-h']));
  assert.ok(!wantsHelp('keys', ['help', '--helper']));
  assert.ok(!wantsHelp('keys', ['--', '--help']));
});

test('help for a command that does not exist suggests the one that was probably meant', () => {
  const refusal = (words: readonly string[]): string => {
    try {
      return helpOn(words);
    } catch (error) {
      assert.ok(error instanceof OperatorError);
      return error.message;
    }
  };
  assert.equal(refusal(['exprot']), '"exprot" is not a command; did you mean export?\nFor help: sluice help');
  assert.equal(
    refusal(['keys', 'craete']),
    '"sluice keys craete" is not a command; did you mean create?\nFor help: sluice help keys',
  );
  assert.equal(refusal(['constructor']), '"constructor" is not a command\nFor help: sluice help');
  assert.equal(refusal([]), mainHelp());
});
