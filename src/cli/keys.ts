/**
 * `sluice keys create|list|edit|roll|revoke`: API keys from the command line, with a running server or without one.
 * Mistakes are reported all at once, before anything is opened. The key file is made by `create` alone: to list, edit,
 * roll or revoke in a wrong folder leaves nothing behind. A whole key is in the output of `create` and `roll` alone.
 */

import type { Config } from '../config/config.ts';
import type { FlagsRead } from '../config/flags.ts';
import { duration, integer, parseDurationMs } from '../config/values.ts';
import { refuseLostKeys } from '../data-folder/lost-keys.ts';
import { OperatorError } from '../errors.ts';
import {
  type Account,
  type ApiKey,
  type KeyChanges,
  keyState,
  type KeyStore,
  type NewKey,
  type RateLimit,
} from '../keys.ts';
import {
  createKey,
  editKey,
  type KeyOptions,
  mistakesIn,
  nameMistake,
  newAccount,
  OVERLAP_MS_MAX,
  RATE_MAX,
  rollKey,
  unusedKey,
} from '../keys/manage.ts';
import { DAY_MS, KEY_KINDS } from '../model.ts';
import { parseIso8601 } from '../validation/iso8601.ts';
import { type Arguments, readChoice, readEnvironment, readFlag, readSubcommand } from './arguments.ts';
import { ENVIRONMENTS_EXPECTED } from './commands.ts';
import { curlLine, fetchSnippet } from './curl.ts';
import { localTime } from './local-time.ts';
import { locationName, readSettings, serverUrlOf } from './location.ts';
import { onFoundKeys, type Shell, withKeyStore } from './shell.ts';
import { bold, indented, renderTable } from './table.ts';

export const DEFAULT_ACCOUNT_NAME = 'default';
/** The last that a date can be. */
const LATEST_TIME = 8_640_000_000_000_000;

/** What a command gets: its arguments, read, and where the keys are. */
interface KeysCall {
  readonly shell: Shell;
  readonly flags: Arguments;
  readonly config: Config;
  readonly now: number;
}

/** Each returns what is printed. */
const COMMANDS = {
  create: createCommand,
  list: listCommand,
  edit: editCommand,
  roll: rollCommand,
  revoke: revokeCommand,
};

export async function runKeys(args: readonly string[], shell: Shell): Promise<number> {
  const { run, flags } = readSubcommand('keys', args, COMMANDS);
  shell.out(await run({ shell, flags, config: readSettings(flags, shell.env), now: shell.now() }));
  return 0;
}

async function createCommand({ shell, flags, config, now }: KeysCall): Promise<string> {
  const options = readOptions(flags, now);
  if (options === undefined || flags.mistakes.length > 0) throw flags.error();

  const isReplacing = flags.switches.has('replace-lost-keys');
  const open = isReplacing ? (place: Config) => shell.replaceLostKeys(place, now) : shell.openKeyStore;
  return withKeyStore(config, open, async (store) => {
    const { account, isNew } = await chooseAccount(store, flags.values.get('account'), now);
    const { key, row } = await createKey(store, { ...options, accountId: account.id, now });
    if (flags.isJson) return indented({ key, ...keyJson(unusedKey(row, account.name), now) });
    const created = isNew ? `Created the account "${account.name}".\n` : '';
    return created + announce(key, row, account, config);
  });
}

function readOptions(flags: Arguments, now: number): KeyOptions | undefined {
  const { mistakes } = flags;
  flags.refuse(flags.positionals);
  const name = flags.values.get('name');
  if (name === undefined) mistakes.push('--name is missing; expected a few words that say what the key is for');
  const kind = readChoice(flags, 'kind', KEY_KINDS);
  const environment = readEnvironment(flags);
  if (!flags.values.has('env')) mistakes.push(`--env is missing; expected ${ENVIRONMENTS_EXPECTED}`);

  const accountName = flags.values.get('account');
  const accountMistake = accountName === undefined ? undefined : nameMistake('account name', accountName);
  if (accountMistake !== undefined) mistakes.push(accountMistake);

  const origins = originsIn(flags.values.get('origins') ?? '');
  const rateLimit = readRateLimit(flags) ?? null;
  const expected = 'a time such as 30d or 12h, or a date such as 2030-01-31 (UTC)';
  const expiresAt = readFlag(flags, 'expires', (text) => readExpiry(text, now), expected) ?? null;

  // What is missing was reported above; a harmless stand-in lets the rest be checked too.
  const checked = { name: name ?? 'none', kind: kind ?? 'publishable', origins, rateLimit, expiresAt };
  mistakes.push(...mistakesIn(checked, now));
  return kind === undefined || environment === undefined ? undefined : { ...checked, kind, environment };
}

/** Separated by commas. */
function originsIn(text: string): string[] {
  return text
    .split(',')
    .map((origin) => origin.trim())
    .filter((origin) => origin !== '');
}

/** Undefined where none is given, or a wrong one, which is then among the mistakes. A burst is by default the rate. */
function readRateLimit(flags: FlagsRead): RateLimit | undefined {
  const { parse, expected } = integer(1, RATE_MAX);
  const usersPerSecond = readFlag(flags, 'users-per-second', parse, expected);
  const burstUsers = readFlag(flags, 'burst', parse, expected) ?? usersPerSecond;
  if (flags.values.has('burst') && !flags.values.has('users-per-second')) {
    flags.mistakes.push('--burst needs --users-per-second');
  }
  return usersPerSecond === undefined || burstUsers === undefined ? undefined : { usersPerSecond, burstUsers };
}

/** A time from now, or a date or date-time of ISO 8601; undefined for anything else. */
function readExpiry(text: string, now: number): number | undefined {
  const fromNow = parseDurationMs(text);
  const time = fromNow === undefined ? parseIso8601(text) : now + fromNow;
  return time !== undefined && time <= LATEST_TIME ? time : undefined;
}

/** The one that is named, made if it is new; without a name the only one there is. */
export async function chooseAccount(
  store: KeyStore,
  accountName: string | undefined,
  now: number,
): Promise<{ account: Account; isNew: boolean }> {
  if (accountName === undefined) {
    const [only, ...others] = await store.accounts();
    if (only !== undefined && others.length === 0) return { account: only, isNew: false };
    if (only !== undefined) {
      const names = [only, ...others].map((account) => `  --account "${account.name}"`);
      throw new OperatorError(['There are several accounts. Choose one:', ...names].join('\n'));
    }
  }
  const made = newAccount(accountName ?? DEFAULT_ACCOUNT_NAME, now);
  const account = await store.ensureAccount(made);
  return { account, isNew: account.id === made.id };
}

function announce(key: string, row: NewKey, account: Account, config: Config): string {
  const baseUrl = serverUrlOf(config);
  const [care, invitation, example] =
    row.kind === 'secret'
      ? [
          'Keep it on your servers, out of browsers and repositories.',
          'With the server running, paste this into a terminal:',
          curlLine(baseUrl, key),
        ]
      : [
          'It can only send events, so it is safe in browsers and apps.',
          'With the server running, put this into a page:',
          fetchSnippet(baseUrl, key),
        ];
  return `Created the ${row.kind} key "${row.name}" (${row.id}) for ${row.environment}, account "${account.name}":

  ${bold(key)}

Shown only once: it cannot be retrieved later. ${care}
${whereItIs(config)}

${invitation}

${example}
`;
}

function whereItIs(config: Config): string {
  return config.storeUrl !== ''
    ? `It is in ${locationName(config)}: all servers on that database accept it at once.`
    : `It is in the data folder ${config.dataFolder}: a server running on that folder accepts it at once.`;
}

async function listCommand({ shell, flags, config, now }: KeysCall): Promise<string> {
  flags.refuse(flags.positionals);
  if (flags.mistakes.length > 0) throw flags.error();

  const keys = (await onKeys(shell, config, (store) => store.list())) ?? [];
  if (flags.isJson) return indented(keys.map((key) => keyJson(key, now)));
  if (keys.length === 0) {
    return (
      `There are no keys in ${locationName(config)} yet. Create one:\n` +
      '  sluice keys create --name "my first key" --kind secret --env development\n'
    );
  }
  const cells = keys.map((key) => keyCells(key, now));
  return `${renderTable(KEY_HEADERS, cells)}\n`;
}

async function editCommand({ shell, flags, config, now }: KeysCall): Promise<string> {
  const { mistakes } = flags;
  const id = readId(flags, 'edited', 'edit key_4fJq0ZpXw2Ab --name "shop backend"');
  const [name, origins] = [flags.values.get('name'), flags.values.get('origins')];
  const isUnlimited = flags.switches.has('no-rate-limit');
  if (isUnlimited && flags.values.has('users-per-second')) {
    mistakes.push('--no-rate-limit and --users-per-second exclude each other');
  }
  const limit = readRateLimit(flags);
  const rateLimit = isUnlimited ? null : limit;
  const changes: KeyChanges = {
    ...(name !== undefined && { name }),
    ...(origins !== undefined && { origins: origins === 'any' ? [] : originsIn(origins) }),
    ...(rateLimit !== undefined && { rateLimit }),
  };
  if (Object.keys(changes).length === 0 && mistakes.length === 0) {
    mistakes.push('nothing to change: expected --name, --origins, --users-per-second or --no-rate-limit');
  }
  if (mistakes.length > 0) throw flags.error();

  const result = await onKeys(shell, config, (store) => editKey(store, { id, changes, now }));
  if (result?.kind === 'mistakes') mistakes.push(...result.mistakes);
  if (mistakes.length > 0) throw flags.error();
  if (result?.kind !== 'edited') throw notChanged(id, config, 'edited', result);
  const { key } = result;
  return flags.isJson ? indented(keyJson(key, now)) : description(key);
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
async function rollCommand({ shell, flags, config, now }: KeysCall): Promise<string> {
  const id = readId(flags, 'rolled', 'roll key_4fJq0ZpXw2Ab');
  const { parse, expected } = duration(0, OVERLAP_MS_MAX);
  const overlapMs = readFlag(flags, 'overlap', parse, expected) ?? DAY_MS;
  if (flags.mistakes.length > 0) throw flags.error();

  const result = await onKeys(shell, config, (store) => rollKey(store, { id, overlapMs, now }));
  if (result?.kind !== 'rolled') throw notChanged(id, config, 'rolled', result);
  const { key, row, old } = result;
  if (flags.isJson) {
    return indented({ key, ...keyJson(unusedKey(row, old.accountName), now), old: keyJson(old, now) });
  }
  const expiresAt = old.expiresAt ?? now;
  const until =
    expiresAt <= now
      ? `The old key ${old.id} has ended; running servers reject it within 2 seconds.`
      : `The old key ${old.id} works until ${minuteOf(expiresAt)}. To end it sooner: sluice keys revoke ${old.id}`;
  return `Rolled the ${old.kind} key "${old.name}" (${displayOf(old)}) of account "${old.accountName}" for ${old.environment}.
The new key (${row.id}):

  ${bold(key)}

Shown only once: it cannot be retrieved later. Running servers accept it at once.
${until}
`;
}

async function revokeCommand({ shell, flags, config, now }: KeysCall): Promise<string> {
  const id = readId(flags, 'revoked', 'revoke key_4fJq0ZpXw2Ab');
  if (flags.mistakes.length > 0) throw flags.error();

  const key = await onKeys(shell, config, (store) => store.revoke(id, now));
  if (key === undefined) throw notChanged(id, config, 'revoked');
  if (flags.isJson) return indented(keyJson(key, now));
  const which = `"${key.name}" (${displayOf(key)}), a ${key.kind} key of account "${key.accountName}" for ${key.environment}`;
  const isFirstTime = key.revokedAt === now;
  return isFirstTime
    ? `Revoked ${which}.\nRunning servers reject it within 2 seconds. This cannot be undone.\n`
    : `Nothing to do: ${which}, was revoked already, on ${minuteOf(key.revokedAt ?? now)}.\n`;
}

/** Empty where there is none, which is then among the mistakes. */
function readId(flags: Arguments, done: string, example: string): string {
  const [id = '', ...others] = flags.positionals;
  if (id === '') flags.mistakes.push(`no key id given, as in: sluice keys ${example}`);
  flags.refuse(others, `keys are ${done} one at a time`);
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

/** Undefined where there are no keys at all: nothing is made only to be looked at. */
async function onKeys<T>(shell: Shell, config: Config, work: (store: KeyStore) => Promise<T>): Promise<T | undefined> {
  const result = await onFoundKeys(shell, config, work);
  if (result === undefined && config.storeUrl === '') refuseLostKeys(config.dataFolder);
  return result;
}

/** What a person should know first. A leaked key still works until it is revoked; that is why it must be seen. */
function stateOf(key: ApiKey, now: number): ReturnType<typeof keyState> | 'probably leaked' {
  const state = keyState(key, now);
  return state === 'active' && key.leakSuspectedAt !== null ? 'probably leaked' : state;
}

const KEY_HEADERS = ['id', 'name', 'kind', 'environment', 'account', 'key', 'created', 'last used', 'state'];

function keyCells(key: ApiKey, now: number): string[] {
  const state = stateOf(key, now);
  return [
    key.id,
    key.name,
    key.kind,
    key.environment,
    key.accountName,
    displayOf(key),
    minuteOf(key.createdAt),
    key.lastUsedAt === null ? 'never' : minuteOf(key.lastUsedAt),
    state === 'probably leaked' ? `active, ${state} (${key.leakOrigin})` : state,
  ];
}

/** With the names and time format of the HTTP API. The key itself is never in it: rows do not hold it. */
function keyJson(key: ApiKey, now: number): Record<string, unknown> {
  return {
    id: key.id,
    name: key.name,
    kind: key.kind,
    environment: key.environment,
    account: { id: key.accountId, name: key.accountName },
    scopes: key.scopes,
    origins: key.origins,
    rate_limit:
      key.rateLimit === null
        ? null
        : { users_per_second: key.rateLimit.usersPerSecond, burst: key.rateLimit.burstUsers },
    prefix: key.prefix,
    last_four: key.lastFour,
    state: stateOf(key, now),
    created_at: isoOf(key.createdAt),
    expires_at: isoOf(key.expiresAt),
    revoked_at: isoOf(key.revokedAt),
    last_used_at: isoOf(key.lastUsedAt),
    last_origin: key.lastOrigin,
    leak_suspected_at: isoOf(key.leakSuspectedAt),
    leak_origin: key.leakOrigin,
  };
}

export function displayOf(key: Pick<ApiKey, 'prefix' | 'lastFour'>): string {
  return `${key.prefix}…${key.lastFour}`;
}

/** `2026-03-01 12:30` in the local zone. */
function minuteOf(time: number): string {
  return localTime(time).slice(0, 16);
}

function isoOf(time: number | null): string | null {
  return time === null ? null : new Date(time).toISOString();
}
