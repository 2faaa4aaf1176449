/**
 * The words of --help: complete, true, and readable in 100 columns.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  configHelp,
  doctorHelp,
  exportHelp,
  importHelp,
  inviteHelp,
  keysHelp,
  mainHelp,
  migrateHelp,
  profileHelp,
  tailHelp,
  traceHelp,
  wantsHelp,
} from '../../src/cli/help.ts';
import { inkFor } from '../../src/cli/table.ts';
import { formatSetting, SETTING_NAMES, SETTINGS } from '../../src/config.ts';

const PLAIN = inkFor(false, {});

test('every setting is there with its flag, its variable and its default', () => {
  const lines = mainHelp(PLAIN).split('\n');
  for (const name of SETTING_NAMES) {
    const { flag, env } = SETTINGS[name];
    const line = lines.find((text) => text.trimStart().startsWith(`--${flag} `)) ?? '';
    assert.ok(line.includes(` ${env} `), name);
    assert.ok(line.endsWith(`default ${formatSetting(name, SETTINGS[name].default) || 'none'}`), name);
  }
});

test('no line is longer than 100 characters or ends in a blank', () => {
  const all = [
    mainHelp,
    keysHelp,
    inviteHelp,
    configHelp,
    tailHelp,
    traceHelp,
    profileHelp,
    importHelp,
    exportHelp,
    doctorHelp,
    migrateHelp,
  ];
  for (const help of all) {
    for (const line of help(PLAIN).split('\n')) {
      assert.ok(line.length <= 100, line);
      assert.equal(line, line.trimEnd());
    }
  }
});

test('help is wanted wherever --help or -h stands', () => {
  assert.ok(wantsHelp(['create', '--help']));
  assert.ok(wantsHelp(['-h']));
  assert.ok(!wantsHelp(['help', '--helper']));
});
