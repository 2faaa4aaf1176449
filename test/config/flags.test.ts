/**
 * Reading flags: forms, mistakes, and the flag that was probably meant.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { readFlags, suggestion } from '../../src/config/flags.ts';

const KINDS = { name: 'value', kind: 'value', json: 'switch' } as const;

function read(...args: string[]) {
  const { values, switches, positionals, mistakes } = readFlags(args, KINDS);
  return { values: Object.fromEntries(values), switches: [...switches], positionals, mistakes };
}

test('values come after a space or an equals sign, and may hold anything but leading dashes', () => {
  assert.deepEqual(read('--name', 'a b', '--kind=x=y', '--json', 'rest'), {
    values: { name: 'a b', kind: 'x=y' },
    switches: ['json'],
    positionals: ['rest'],
    mistakes: [],
  });
  assert.deepEqual(read('--name=--odd').values, { name: '--odd' });
  assert.deepEqual(read('--name', '-1').values, { name: '-1' });
  assert.deepEqual(read('--name', '').values, { name: '' });
});

test('what comes after a lone double dash is no flag', () => {
  assert.deepEqual(read('--', '--name', 'x').positionals, ['--name', 'x']);
});

test('a flag without its value is reported, and swallows no other flag', () => {
  assert.deepEqual(read('--name', '--kind', 'k'), {
    values: { kind: 'k' },
    switches: [],
    positionals: [],
    mistakes: ['--name needs a value'],
  });
  assert.deepEqual(read('--kind').mistakes, ['--kind needs a value']);
});

test('an unknown flag is reported once, its value with it', () => {
  const { mistakes, positionals } = read('--nmae', 'x', '--jsno', 'y', '-x', '--colour=red', 'z');
  assert.deepEqual(mistakes, [
    'unknown flag --nmae; did you mean --name?',
    'unknown flag --jsno; did you mean --json?',
    'unknown flag -x',
    'unknown flag --colour',
  ]);
  assert.deepEqual(positionals, ['z']);
});

test('a switch takes no value', () => {
  assert.deepEqual(read('--json=yes').mistakes, ['--json takes no value, but "yes" was given']);
});

test('names that every object has are unknown flags like any other', () => {
  assert.deepEqual(read('--constructor', '--__proto__=x', '--toString').mistakes, [
    'unknown flag --constructor',
    'unknown flag --__proto__',
    'unknown flag --toString',
  ]);
});

test('any list of arguments can be read', () => {
  const argument = fc.oneof(
    fc.string(),
    fc.constantFrom('--name', '--json', '--', '-', '--name=', '--x', '---', '-ab'),
  );
  fc.assert(
    fc.property(fc.array(argument), (args) => {
      readFlags(args, KINDS);
    }),
  );
});

test('the nearest name is suggested, and none when all are far', () => {
  const names = ['--port', '--host', '--data'];
  assert.equal(suggestion('--prot', names), '; did you mean --port?');
  assert.equal(suggestion('--PORT', names), '; did you mean --port?');
  assert.equal(suggestion('--hst', names), '; did you mean --host?');
  assert.equal(suggestion('--colour', names), '');
});
