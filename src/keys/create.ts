/**
 * Creates API keys and accounts. The only place where a key exists as text: it is returned to be shown once, and the
 * store gets its SHA-256. User input is validated here, for the command line and the dashboard alike, and all mistakes
 * are reported at once.
 */

import { OperatorError } from '../errors.ts';
import type { Environment, KeyKind } from '../model.ts';
import type { Account, ApiKey, KeyStore, NewKey, RateLimit } from '../keys.ts';
import { hashKey, keyDisplay, makeKey, randomBase62, SCOPES } from './format.ts';

const NAME_CHARACTERS_MAX = 100;
const ORIGINS_MAX = 100;
/** Users per second, and users at once; far above what one server accepts. */
export const RATE_MAX = 1_000_000;

const ID_CHARACTERS = 12;
const LOCAL_HOSTS = new Set(['localhost', '127.0.0.1', '[::1]']);

/** What a person decides about a key. */
export interface KeyOptions {
  readonly name: string;
  readonly kind: KeyKind;
  readonly environment: Environment;
  /** As typed; stored the way browsers send them. */
  readonly origins: readonly string[];
  readonly expiresAt: number | null;
  /** Absent for no limit. */
  readonly rateLimit?: RateLimit | null;
}

export async function createKey(
  store: KeyStore,
  options: KeyOptions & { readonly accountId: string; readonly now: number },
): Promise<{ key: string; row: NewKey }> {
  const mistakes = mistakesIn(options, options.now);
  if (mistakes.length > 0) throw new OperatorError(mistakes.join('\n'));

  const { accountId, name, kind, environment, expiresAt, rateLimit = null, now } = options;
  const key = makeKey(kind, environment);
  const row: NewKey = {
    id: `key_${randomBase62(ID_CHARACTERS)}`,
    hash: hashKey(key),
    accountId,
    name: name.trim(),
    kind,
    environment,
    scopes: SCOPES[kind],
    origins: storedOrigins(options.origins),
    rateLimit,
    ...keyDisplay(key),
    createdAt: now,
    expiresAt,
  };
  await store.create(row);
  return { key, row };
}

/** A key that was just created, as the store returns it; `accountName` where a response names the account. */
export function unusedKey(row: NewKey, accountName = ''): ApiKey {
  const unused = { revokedAt: null, lastUsedAt: null, lastOrigin: null, leakSuspectedAt: null, leakOrigin: null };
  return { ...row, ...unused, enforcedPlan: null, accountName };
}

/** The way browsers send them, each once. */
export function storedOrigins(origins: readonly string[]): string[] {
  return [...new Set(origins.map((origin) => new URL(origin).origin))];
}

/** An account that is not stored yet. */
export function newAccount(name: string, now: number): Account {
  const mistake = nameMistake('account name', name);
  if (mistake !== undefined) throw new OperatorError(mistake);
  return { id: `acct_${randomBase62(ID_CHARACTERS)}`, name: name.trim(), createdAt: now };
}

/** Everything that is wrong with the options, a sentence each; empty when they are valid. */
export function mistakesIn(
  options: Pick<KeyOptions, 'name' | 'kind' | 'origins' | 'expiresAt' | 'rateLimit'>,
  now: number,
): string[] {
  const { name, kind, origins, expiresAt, rateLimit = null } = options;
  const mistakes = [nameMistake('key name', name), ...origins.map(originMistake)];
  if (kind === 'secret' && origins.length > 0) {
    mistakes.push('Origins are for publishable keys: a secret key must never be in a browser.');
  }
  if (origins.length > ORIGINS_MAX) {
    mistakes.push(`A key can have at most ${ORIGINS_MAX} origins; ${origins.length} were given.`);
  }
  if (expiresAt !== null && expiresAt <= now) {
    mistakes.push(`The key would have expired already, on ${new Date(expiresAt).toISOString()}.`);
  }
  if (rateLimit !== null) {
    mistakes.push(
      rateMistake('users per second', rateLimit.usersPerSecond),
      rateMistake('burst', rateLimit.burstUsers),
    );
  }
  return mistakes.filter((mistake) => mistake !== undefined);
}

function rateMistake(what: string, users: number): string | undefined {
  if (isRate(users)) return undefined;
  return `The ${what} of a rate limit must be a whole number from 1 to ${RATE_MAX.toLocaleString('en')}.`;
}

export function isRate(users: number): boolean {
  return Number.isInteger(users) && users >= 1 && users <= RATE_MAX;
}

/** Control characters are refused because names are printed on terminals. */
export function nameMistake(what: string, name: string): string | undefined {
  const characters = name.trim().length;
  if (characters === 0) return `The ${what} must not be empty.`;
  if (characters > NAME_CHARACTERS_MAX) {
    return `The ${what} has ${characters} characters; at most ${NAME_CHARACTERS_MAX} are allowed.`;
  }
  if (/\p{Cc}/u.test(name)) return `The ${what} must not contain line breaks or other control characters.`;
  return undefined;
}

/**
 * An origin is what a browser sends in its `Origin` header, and is compared with it as a whole. Plain http is allowed
 * only for localhost, where developers run their pages; anywhere else it could be forged on the way.
 */
function originMistake(origin: string): string | undefined {
  // With the slash that address bars put after it.
  const url = /^https?:\/\/[^/?#@\s*\\]+\/?$/i.test(origin) ? URL.parse(origin) : null;
  if (url !== null && (url.protocol === 'https:' || LOCAL_HOSTS.has(url.hostname))) return undefined;
  return `The origin "${origin}" is not of the form https://host or https://host:port (http:// only for localhost), without a path.`;
}
