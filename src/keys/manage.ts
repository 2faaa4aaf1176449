/**
 * Creates, edits and rolls API keys, and creates accounts, for the dashboard and the command line alike. The only place
 * where a key exists as text: it is returned to be shown once, and the store gets its SHA-256. User input is validated
 * here, and all mistakes are reported at once. Omitted fields of an edit stay, and the kind and environment of a key
 * never change.
 */

import { OperatorError } from '../errors.ts';
import {
  type Account,
  type ApiKey,
  type KeyChanges,
  keyState,
  type KeyState,
  type KeyStore,
  type NewKey,
  type RateLimit,
} from '../keys.ts';
import { DAY_MS, type Environment, type KeyKind } from '../model.ts';
import { hashKey, keyDisplay, makeKey, randomBase62, SCOPES } from './format.ts';

const NAME_CHARACTERS_MAX = 100;
const ORIGINS_MAX = 100;
export const OVERLAP_MS_MAX = 30 * DAY_MS;
/** Users per second, and users at once; far above what one server accepts. */
export const RATE_MAX = 1_000_000;

const ID_CHARACTERS = 12;
const LOCAL_HOSTS = new Set(['localhost', '127.0.0.1', '[::1]']);

export interface KeyOptions {
  readonly name: string;
  readonly kind: KeyKind;
  readonly environment: Environment;
  /** As typed; stored the way browsers send them. */
  readonly origins: readonly string[];
  readonly expiresAt: number | null;
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

interface WhichKey {
  readonly id: string;
  /** Only a key of this account is changed; undefined for the operator, who may change any. */
  readonly accountId?: string;
  readonly now: number;
}

type Unchanged =
  | { readonly kind: 'inactive'; readonly state: Exclude<KeyState, 'active'> }
  | { readonly kind: 'unknown' };

type EditResult =
  | Unchanged
  | { readonly kind: 'edited'; readonly key: ApiKey }
  | { readonly kind: 'mistakes'; readonly mistakes: readonly string[] };

export async function editKey(
  keyStore: KeyStore,
  { changes, ...which }: WhichKey & { readonly changes: KeyChanges },
): Promise<EditResult> {
  const found = await findActive(keyStore, which);
  if (found.kind !== 'active') return found;
  const mistakes = mistakesIn({ ...found.key, ...changes }, which.now);
  if (mistakes.length > 0) return { kind: 'mistakes', mistakes };
  const { name, origins } = changes;
  const key = await keyStore.edit(which.id, {
    ...changes,
    ...(name !== undefined && { name: name.trim() }),
    ...(origins !== undefined && { origins: storedOrigins(origins) }),
  });
  return key === undefined ? { kind: 'unknown' } : { kind: 'edited', key };
}

type RollResult =
  | Unchanged
  | { readonly kind: 'rolled'; readonly key: string; readonly row: NewKey; readonly old: ApiKey };

/**
 * Creates another key with the same name, kind, environment, origins and rate limit, and lets the old one expire after an
 * overlap (0 to OVERLAP_MS_MAX) in which both work. The new key is stored first: after a crash in between both work, never
 * neither. It has no expiry, even if the old one had.
 */
export async function rollKey(
  keyStore: KeyStore,
  { overlapMs, ...which }: WhichKey & { readonly overlapMs: number },
): Promise<RollResult> {
  const found = await findActive(keyStore, which);
  if (found.kind !== 'active') return found;
  const created = await createKey(keyStore, { ...found.key, expiresAt: null, now: which.now });
  const old = await keyStore.expire(which.id, which.now + overlapMs);
  return old === undefined ? { kind: 'unknown' } : { kind: 'rolled', ...created, old };
}

async function findActive(
  keyStore: KeyStore,
  { id, accountId, now }: WhichKey,
): Promise<Unchanged | { readonly kind: 'active'; readonly key: ApiKey }> {
  const key = (await keyStore.list(accountId)).find((found) => found.id === id);
  if (key === undefined) return { kind: 'unknown' };
  const state = keyState(key, now);
  return state === 'active' ? { kind: 'active', key } : { kind: 'inactive', state };
}

function storedOrigins(origins: readonly string[]): string[] {
  return [...new Set(origins.map((origin) => new URL(origin).origin))];
}

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

function isRate(users: number): boolean {
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
