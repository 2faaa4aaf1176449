/**
 * `sluice keys create|list|edit|roll|revoke`: API keys from the command line, beside a running server or without one. Mistakes
 * are reported all at once, before anything is opened. The key file is made by `create` alone: to list, edit, roll or revoke
 * in a wrong folder leaves nothing behind.
 */

import type { Config } from '../config/config.ts';
import { formatDuration, parseDurationMs } from '../config/values.ts';
import { OperatorError } from '../errors.ts';
import type { ApiKey, KeyChanges } from '../keys.ts';
import { unusedKey } from '../keys/create.ts';
import { editKey, OVERLAP_MS_MAX, rollKey } from '../keys/change.ts';
import { type Arguments, readArguments } from './arguments.ts';
import { commandHelp, subcommandOf } from './help.ts';
import { createCommand, originsIn, readRateLimit } from './keys-create.ts';
import { displayOf, KEY_HEADERS, keyCells, keyJson, type KeysIo, minuteOf, onKeys } from './keys-shell.ts';
import { locationName, readSettings } from './location.ts';
import { type Ink, inkFor, renderTable } from './table.ts';

const OVERLAP_DEFAULT = '24h';

/** Returns the exit code; throws `OperatorError` for what the person has to fix. */
export async function runKeys(args: readonly string[], io: KeysIo): Promise<number> {
  const ink = inkFor(io.isTty, io.env);
  const run = subcommandOf('keys', args, COMMANDS);
  if (run !== undefined) return run(args.slice(1), io, ink);
  io.out(commandHelp('keys', [], ink));
  return 0;
}

const COMMANDS = {
  create: createCommand,
  list: listCommand,
  edit: editCommand,
  roll: rollCommand,
  revoke: revokeCommand,
};

async function listCommand(args: readonly string[], io: KeysIo, ink: Ink): Promise<number> {
  const now = io.now();
  const flags = readArguments('keys list', args);
  const config = readSettings(flags, io.env);
  flags.mistakes.push(...flags.positionals.map((word) => `unexpected argument "${word}"`));
  if (flags.mistakes.length > 0) throw flags.error();

  const keys = (await onKeys(io, config, (store) => store.list())) ?? [];
  if (flags.isJson) {
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

async function editCommand(args: readonly string[], io: KeysIo): Promise<number> {
  const now = io.now();
  const flags = readArguments('keys edit', args);
  const { mistakes } = flags;
  const config = readSettings(flags, io.env);
  const id = readId(flags, 'edited', 'edit key_4fJq0ZpXw2Ab --name "shop backend"');
  const [name, origins] = [flags.values.get('name'), flags.values.get('origins')];
  const given = readRateLimit(flags);
  const isUnlimited = flags.switches.has('no-rate-limit');
  if (isUnlimited && given !== undefined) mistakes.push('--no-rate-limit and --users-per-second exclude each other');
  const rateLimit = isUnlimited ? null : given;
  const changes: KeyChanges = {
    ...(name !== undefined && { name }),
    ...(origins !== undefined && { origins: origins === 'any' ? [] : originsIn(origins) }),
    ...(rateLimit !== undefined && { rateLimit }),
  };
  if (Object.keys(changes).length === 0) {
    mistakes.push('nothing to change: expected --name, --origins, --users-per-second or --no-rate-limit');
  }
  if (mistakes.length > 0) throw flags.error();

  const result = await onKeys(io, config, (store) => editKey(store, { id, changes, now }));
  if (result?.kind === 'mistakes') mistakes.push(...result.mistakes);
  if (mistakes.length > 0) throw flags.error();
  if (result?.kind !== 'edited') throw notChanged(id, config, 'edited', result);
  const { key } = result;
  io.out(flags.isJson ? `${JSON.stringify(keyJson(key, now), undefined, 2)}\n` : description(key));
  return 0;
}

function description(key: ApiKey): string {
  const { name, kind, environment, origins, rateLimit } = key;
  const limit =
    rateLimit === null ? 'none' : `${rateLimit.usersPerSecond} users per second, burst ${rateLimit.burstUsers}`;
  return `Edited the ${kind} key "${name}" (${displayOf(key)}) for ${environment}. Running servers pick up the change within 2 seconds.
  origins     ${origins.length === 0 ? 'any' : origins.join(', ')}
  rate limit  ${limit}
`;
}

/** The new key is shown only once; the old one works until the overlap has passed. */
async function rollCommand(args: readonly string[], io: KeysIo, ink: Ink): Promise<number> {
  const now = io.now();
  const flags = readArguments('keys roll', args);
  const config = readSettings(flags, io.env);
  const id = readId(flags, 'rolled', 'roll key_4fJq0ZpXw2Ab');
  const overlap = flags.values.get('overlap') ?? OVERLAP_DEFAULT;
  const overlapMs = parseDurationMs(overlap) ?? Infinity;
  if (overlapMs > OVERLAP_MS_MAX) {
    const most = formatDuration(OVERLAP_MS_MAX);
    flags.mistakes.push(`--overlap is "${overlap}"; expected a time from 0 to ${most}, such as ${OVERLAP_DEFAULT}`);
  }
  if (flags.mistakes.length > 0) throw flags.error();

  const result = await onKeys(io, config, (store) => rollKey(store, { id, overlapMs, now }));
  if (result?.kind !== 'rolled') throw notChanged(id, config, 'rolled', result);
  const { key, row, old } = result;
  if (flags.isJson) {
    const created = keyJson(unusedKey(row, old.accountName), now);
    io.out(`${JSON.stringify({ key, ...created, old: keyJson(old, now) }, undefined, 2)}\n`);
    return 0;
  }
  const expiresAt = old.expiresAt ?? now;
  const until =
    expiresAt <= now
      ? `The old key ${old.id} has ended; running servers reject it within 2 seconds.`
      : `The old key ${old.id} works until ${minuteOf(expiresAt)} UTC. To end it sooner: sluice keys revoke ${old.id}`;
  io.out(`Rolled the ${old.kind} key "${old.name}" (${displayOf(old)}) of account "${old.accountName}" for ${old.environment}.
The new key (${row.id}):

  ${ink.bold(key)}

Shown only once: it cannot be retrieved later. Running servers accept it at once.
${until}
`);
  return 0;
}

async function revokeCommand(args: readonly string[], io: KeysIo): Promise<number> {
  const now = io.now();
  const flags = readArguments('keys revoke', args);
  const config = readSettings(flags, io.env);
  const id = readId(flags, 'revoked', 'revoke key_4fJq0ZpXw2Ab');
  if (flags.mistakes.length > 0) throw flags.error();

  const key = await onKeys(io, config, (store) => store.revoke(id, now));
  if (key === undefined) throw notChanged(id, config, 'revoked');
  if (flags.isJson) {
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

/** Empty where there is none, which is then among the mistakes. */
function readId({ positionals, mistakes }: Arguments, done: string, example: string): string {
  const [id = '', ...others] = positionals;
  if (id === '') mistakes.push(`no key id given, as in: sluice keys ${example}`);
  mistakes.push(...others.map((word) => `unexpected argument "${word}"; keys are ${done} one at a time`));
  return id;
}

/** `result`: what became of it; undefined where there are no keys at all. */
function notChanged(
  id: string,
  config: Config,
  done: string,
  result?: { readonly kind: string; readonly state?: string },
): OperatorError {
  if (result?.kind === 'inactive') {
    return new OperatorError(
      `The key ${id} in ${locationName(config)} is ${result.state}: only an active key can be ${done}. ` +
        'To create one: sluice keys create',
    );
  }
  // The key itself may have been given, which must not end up in a log of this command.
  const problem = id.startsWith('key_')
    ? `No key in ${locationName(config)} has the id ${id}.`
    : 'That is not the id of a key: ids begin with key_.';
  return new OperatorError(`${problem} "sluice keys list" shows the ids; --data FOLDER looks elsewhere.`);
}
