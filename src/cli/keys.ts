/**
 * `sluice keys create|list|edit|roll|revoke`: API keys from the command line, beside a running server or without one. Mistakes
 * are reported all at once, before anything is opened. The key file is made by `create` alone: to list, roll or revoke in
 * a wrong folder leaves nothing behind.
 */

import { COMMANDS, flagKinds } from './commands.ts';
import { mistakesError, readFlags } from '../config/flags.ts';
import { commandHelp, unknownCommand } from './help.ts';
import { createCommand } from './keys-create.ts';
import { editCommand } from './keys-edit.ts';
import { type KeysIo, onKeys, unknownKey } from './keys-shell.ts';
import { rollCommand } from './keys-roll.ts';
import { displayOf, KEY_HEADERS, keyCells, keyJson, minuteOf } from './keys-show.ts';
import { locationName, readSettings } from './location.ts';
import { type Ink, inkFor, renderTable } from './table.ts';

/** Returns the exit code; throws `OperatorError` for what the person has to fix. */
export async function runKeys(args: readonly string[], io: KeysIo): Promise<number> {
  const ink = inkFor(io.isTty, io.env);
  const [command, ...rest] = args;
  if (command === undefined) {
    io.out(commandHelp('keys', [], ink));
    return 0;
  }
  switch (command) {
    case 'create':
      return createCommand(rest, io, ink);
    case 'list':
      return listCommand(rest, io, ink);
    case 'edit':
      return editCommand(rest, io);
    case 'roll':
      return rollCommand(rest, io, ink);
    case 'revoke':
      return revokeCommand(rest, io);
    default:
      throw unknownCommand(['keys', command]);
  }
}

async function listCommand(args: readonly string[], io: KeysIo, ink: Ink): Promise<number> {
  const now = io.now();
  const flags = readFlags(args, flagKinds(COMMANDS.keys.commands.list));
  const { config, mistakes } = readSettings(flags, io.env);
  mistakes.push(...flags.positionals.map((word) => `unexpected argument "${word}"`));
  if (mistakes.length > 0) throw mistakesError(mistakes, 'For help: sluice help keys list');

  const keys = (await onKeys(io, config, (store) => store.list())) ?? [];
  if (flags.switches.has('json')) {
    const rows = keys.map((key) => keyJson(key, now));
    io.out(`${JSON.stringify(rows, undefined, 2)}\n`);
  } else if (keys.length === 0) {
    io.out(
      `There are no keys in ${locationName(config)} yet. Create one:\n` +
        '  sluice keys create --name "my first key" --kind secret --env development\n',
    );
  } else {
    const cells = keys.map((key) => keyCells(key, now));
    io.out(`${renderTable(KEY_HEADERS, cells, ink)}\n`);
  }
  return 0;
}

async function revokeCommand(args: readonly string[], io: KeysIo): Promise<number> {
  const now = io.now();
  const flags = readFlags(args, flagKinds(COMMANDS.keys.commands.revoke));
  const { config, mistakes } = readSettings(flags, io.env);
  const [id = '', ...others] = flags.positionals;
  if (id === '') mistakes.push('no key id given, as in: sluice keys revoke key_4fJq0ZpXw2Ab');
  mistakes.push(...others.map((word) => `unexpected argument "${word}"; keys are revoked one at a time`));
  if (mistakes.length > 0) throw mistakesError(mistakes, 'For help: sluice help keys revoke');

  const key = await onKeys(io, config, (store) => store.revoke(id, now));
  if (key === undefined) throw unknownKey(id, config);
  if (flags.switches.has('json')) {
    io.out(`${JSON.stringify(keyJson(key, now), undefined, 2)}\n`);
    return 0;
  }
  const which = `"${key.name}" (${displayOf(key)}), a ${key.kind} key of account "${key.accountName}" for ${key.environment}`;
  const isFirstTime = key.revokedAt === now;
  io.out(
    isFirstTime
      ? `Revoked ${which}.\nRunning servers reject it within 2 seconds. This cannot be undone.\n`
      : `Nothing to do: ${which}, was revoked already, on ${minuteOf(key.revokedAt ?? now)} UTC.\n`,
  );
  return 0;
}
