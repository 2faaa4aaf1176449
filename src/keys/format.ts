/**
 * The format of an API key: a prefix that says what it is, 32 random base62 characters, and a checksum of everything
 * before it. The checksum detects typos and guesses without a lookup; it is not secret and proves nothing. Everything
 * here is pure except creating a key. A key is never stored, only its SHA-256: with 190 bits of randomness, a slow
 * password hash would only add time to every request.
 */

import { hash, randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { Environment, KeyKind } from '../model.ts';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const RANDOM_CHARACTERS = 32;
/** 62^6 is more than 2^32, so six characters hold any CRC32. */
const CHECKSUM_CHARACTERS = 6;

const SECRET_PREFIXES = { production: 'sk_prod_', development: 'sk_dev_' } as const satisfies Record<
  Environment,
  string
>;
const PUBLISHABLE_PREFIX = 'pk_';

/**
 * Finds keys in text, wherever they leaked to. Written without look-around so that grep -E, RE2 and secret scanners
 * take it as it is; `isWellFormedKey` then sorts out what only looks like a key.
 */
export const KEY_PATTERN = /(sk_(prod|dev)|pk)_[0-9A-Za-z]{38}/;

const WHOLE_KEY = new RegExp(`^${KEY_PATTERN.source}$`);

/** What a key may do, pinned by its kind. A publishable key is in everyone's hands and may only write events. */
export const SCOPES = {
  secret: ['ingest:write', 'data:read', 'messages:send'],
  publishable: ['ingest:write'],
} as const satisfies Record<KeyKind, readonly string[]>;

export function makeKey(kind: KeyKind, environment: Environment): string {
  const prefix = kind === 'secret' ? SECRET_PREFIXES[environment] : PUBLISHABLE_PREFIX;
  const body = prefix + randomBase62(RANDOM_CHARACTERS);
  return body + checksum(body);
}

/** True for text that could be a key: prefix, length, alphabet and checksum are right. It may still not exist. */
export function isWellFormedKey(text: string): boolean {
  if (!WHOLE_KEY.test(text)) return false;
  const body = text.slice(0, -CHECKSUM_CHARACTERS);
  return text.endsWith(checksum(body));
}

export function hashKey(text: string): Buffer {
  return hash('sha256', text, 'buffer');
}

/** The parts of a key that may always be shown. The last four characters are of the checksum, not of the secret. */
export function keyDisplay(key: string): { prefix: string; lastFour: string } {
  return { prefix: key.slice(0, key.lastIndexOf('_') + 1), lastFour: key.slice(-4) };
}

/** Each character equally likely: `randomInt` draws without the bias that a remainder of random bytes would have. */
export function randomBase62(characters: number): string {
  let text = '';
  for (let i = 0; i < characters; i++) text += ALPHABET.charAt(randomInt(ALPHABET.length));
  return text;
}

function checksum(body: string): string {
  let rest = crc32(body);
  let text = '';
  for (let i = 0; i < CHECKSUM_CHARACTERS; i++) {
    text = ALPHABET.charAt(rest % ALPHABET.length) + text;
    rest = Math.floor(rest / ALPHABET.length);
  }
  return text;
}
