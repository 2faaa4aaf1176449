/**
 * `sluice keys create`: reads what the person wants, reports all mistakes at once before anything is opened, then creates
 * the key, and the account if need be. The only output that ever holds the whole key.
 */

import type { Config } from '../config/config.ts';
import { parseDurationMs } from '../config/values.ts';
import { OperatorError } from '../errors.ts';
import { createKey, type KeyOptions, mistakesIn, nameMistake, newAccount, unusedKey } from '../keys/create.ts';
import { KEY_KINDS } from '../model.ts';
import type { Account, KeyStore, NewKey, RateLimit } from '../keys.ts';
import { curlLine, fetchSnippet } from './curl.ts';
import { ENVIRONMENTS_EXPECTED, readChoice, readEnvironment } from './choices.ts';
import type { FlagsRead } from '../config/flags.ts';
import { readArguments } from './arguments.ts';
import { keyJson, type KeysIo, withKeyStore } from './keys-shell.ts';
import { isShared, locationName, readSettings, serverUrlOf } from './location.ts';
import type { Ink } from './table.ts';

export const DEFAULT_ACCOUNT_NAME = 'default';

export async function createCommand(args: readonly string[], io: KeysIo, ink: Ink): Promise<number> {
  const now = io.now();
  const flags = readArguments('keys create', args);
  const config = readSettings(flags, io.env);
  const options = readOptions(flags, now);
  if (options === undefined || flags.mistakes.length > 0) throw flags.error();

  const isReplacing = flags.switches.has('replace-lost-keys');
  const open = isReplacing ? (place: Config) => io.replaceLostKeys(place, now) : io.openKeyStore;
  await withKeyStore(config, open, async (store) => {
    const { account, isNew } = await chooseAccount(store, flags.values.get('account'), now);
    const { key, row } = await createKey(store, { ...options, accountId: account.id, now });
    if (flags.isJson) {
      io.out(`${JSON.stringify({ key, ...keyJson(unusedKey(row, account.name), now) }, undefined, 2)}\n`);
      return;
    }
    if (isNew) io.out(`Created the account "${account.name}".\n`);
    io.out(announce(key, row, account, { where: whereItIs(config), baseUrl: serverUrlOf(config) }, ink));
  });
  return 0;
}

function readOptions(flags: FlagsRead, now: number): KeyOptions | undefined {
  const { mistakes } = flags;
  mistakes.push(...flags.positionals.map((word) => `unexpected argument "${word}"`));
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
  const expires = flags.values.get('expires');
  const expiresAt = expires === undefined ? null : readExpiry(expires, now);
  if (expiresAt === undefined) {
    mistakes.push(`--expires is "${expires}"; expected a time such as 30d or 12h, or a date such as 2030-01-31 (UTC)`);
  }

  // What is missing was reported above; a harmless stand-in lets the rest be checked too.
  const checked = {
    name: name ?? 'none',
    kind: kind ?? 'publishable',
    origins,
    rateLimit,
    expiresAt: expiresAt ?? null,
  };
  mistakes.push(...mistakesIn(checked, now));
  return kind === undefined || environment === undefined ? undefined : { ...checked, kind, environment };
}

/** Separated by commas. */
export function originsIn(text: string): string[] {
  return text
    .split(',')
    .map((origin) => origin.trim())
    .filter((origin) => origin !== '');
}

/** Undefined if none is given. Without a burst it is one second of the rate. */
export function readRateLimit({ values, mistakes }: FlagsRead): RateLimit | undefined {
  const [rate, burst] = [values.get('users-per-second'), values.get('burst')];
  if (rate === undefined) {
    if (burst !== undefined) mistakes.push('--burst needs --users-per-second');
    return undefined;
  }
  for (const [name, text] of Object.entries({ 'users-per-second': rate, burst: burst ?? rate })) {
    if (!/^\d{1,9}$/.test(text)) mistakes.push(`--${name} is "${text}"; expected a whole number`);
  }
  return { usersPerSecond: Number(rate), burstUsers: Number(burst ?? rate) };
}

/** A time from now, or a date (its first moment) or a minute in UTC; undefined for anything else. */
function readExpiry(text: string, now: number): number | undefined {
  const fromNow = parseDurationMs(text);
  const isDate = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?Z)?$/.test(text);
  if (fromNow === undefined && !isDate) return undefined;
  const date = new Date(fromNow === undefined ? text : now + fromNow);
  if (Number.isNaN(date.valueOf())) return undefined;
  // JavaScript makes 2 March of 30 February.
  if (isDate && !date.toISOString().startsWith(text.slice(0, 10))) return undefined;
  return date.valueOf();
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

function announce(
  key: string,
  row: NewKey,
  account: Account,
  { where, baseUrl }: { where: string; baseUrl: string },
  ink: Ink,
): string {
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

  ${ink.bold(key)}

Shown only once: it cannot be retrieved later. ${care}
${where}

${invitation}

${example}
`;
}

function whereItIs(config: Config): string {
  return isShared(config)
    ? `It is in ${locationName(config)}: all servers on that database accept it at once.`
    : `It is in the data folder ${config.dataFolder}: a server running on that folder accepts it at once.`;
}
