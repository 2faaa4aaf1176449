/**
 * Which passwords are accepted, and how they are stored. argon2id with the parameters that OWASP recommends (19 MiB,
 * two passes) makes each guess expensive, for an attacker with the file as well as for us. The parameters are stored
 * with each hash, in the PHC string format, so they can be raised later without locking anyone out.
 *
 * Because a check is expensive, an edge computes few at once and queues few: beyond that the response is 503, and
 * events are still accepted. An unknown e-mail costs the same as a wrong password.
 */

import { argon2, randomBytes, timingSafeEqual } from 'node:crypto';
import { isLongerThan, isStorable } from '../validation/characters.ts';

const PASSWORD_CHARACTERS_MIN = 10;
export const PASSWORD_CHARACTERS_MAX = 200;

/** Memory in KiB, passes, lanes. */
const COST: Cost = { m: 19_456, t: 2, p: 1 };
const SALT_BYTES = 16;
const HASH_BYTES = 32;
/** A stored hash that asks for more than this is not ours. */
const COST_MAX: Cost = { m: 65_536, t: 10, p: 4 };
const ARGON2 = /^\$argon2id\$v=19\$m=(\d+),t=(\d+),p=(\d+)\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/;

/**
 * Checks at once per process; with more than two edges, one per edge. libuv has one pool of four threads for the
 * process, and decompression of request bodies uses it too.
 */
const RUNNING_MAX = 2;
/** The last in line waits about a second. */
const WAITING_MAX = 18;

export class TooBusyError extends Error {
  override readonly name = 'TooBusyError';
}

/** What is wrong with a new password, in words that begin with the name of its field; undefined if nothing is. */
export function passwordMistake(field: string, password: string): string | undefined {
  if (!isStorable(password)) return `${field} contains a character that cannot be stored`;
  if (!isLongerThan(password, PASSWORD_CHARACTERS_MIN - 1)) {
    return `${field} must have at least ${PASSWORD_CHARACTERS_MIN} characters`;
  }
  if (isLongerThan(password, PASSWORD_CHARACTERS_MAX)) {
    return `${field} must have at most ${PASSWORD_CHARACTERS_MAX} characters`;
  }
  return undefined;
}

export class Passwords {
  readonly #runningMax: number;
  #running = 0;
  readonly #waiting: (() => void)[] = [];
  /** Compared with for unknown e-mails; no password matches it. */
  readonly #noMember = phcString(randomBytes(SALT_BYTES), randomBytes(HASH_BYTES));

  /** `edges`: how many there are in this process, each with one of these. */
  constructor(edges = 1) {
    this.#runningMax = Math.max(1, Math.floor(RUNNING_MAX / edges));
  }

  async hash(password: string): Promise<string> {
    const salt = randomBytes(SALT_BYTES);
    return phcString(salt, await this.#withSlot(() => deriveArgon2(password, salt, COST, HASH_BYTES)));
  }

  /** Whether it is the password behind the hash; for an undefined one it takes as long, and is false. */
  async verify(password: string, passwordHash: string | undefined): Promise<boolean> {
    const { cost, salt, expected } = readHash(passwordHash ?? this.#noMember);
    const given = await this.#withSlot(() => deriveArgon2(password, salt, cost, expected.length));
    return timingSafeEqual(given, expected) && passwordHash !== undefined;
  }

  /** Whether a password should be rehashed with the current parameters, at its next sign-in. */
  isOutdated(passwordHash: string): boolean {
    return !passwordHash.startsWith(PREFIX);
  }

  get isFull(): boolean {
    return this.#waiting.length >= WAITING_MAX;
  }

  async #withSlot(derive: () => Promise<Buffer>): Promise<Buffer> {
    await this.#takeSlot();
    try {
      return await derive();
    } finally {
      const next = this.#waiting.shift();
      // The next waiting call takes the slot; no other can slip in between.
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }

  async #takeSlot(): Promise<void> {
    if (this.#running < this.#runningMax) {
      this.#running += 1;
      return;
    }
    if (this.isFull) throw new TooBusyError('too many passwords are being checked');
    await new Promise<void>((resolve) => {
      this.#waiting.push(resolve);
    });
  }
}

type Cost = Readonly<Record<'m' | 't' | 'p', number>>;

const PREFIX = `$argon2id$v=19$m=${COST.m},t=${COST.t},p=${COST.p}$`;

/** https://github.com/P-H-C/phc-string-format: base64 without padding. */
function phcString(salt: Buffer, hash: Buffer): string {
  const [saltText, hashText] = [salt, hash].map((bytes) => bytes.toString('base64').replace(/=+$/, ''));
  return `${PREFIX}${saltText}$${hashText}`;
}

function readHash(stored: string) {
  const [, m, t, p, salt = '', hash = ''] = ARGON2.exec(stored) ?? [];
  const cost = { m: Number(m), t: Number(t), p: Number(p) };
  // Also false for numbers that are missing.
  if (!(cost.m <= COST_MAX.m && cost.t <= COST_MAX.t && cost.p <= COST_MAX.p)) {
    throw new Error('a password hash is not in the form that this version knows');
  }
  return { cost, salt: Buffer.from(salt, 'base64'), expected: Buffer.from(hash, 'base64') };
}

function deriveArgon2(password: string, nonce: Buffer, { m, t, p }: Cost, tagLength: number): Promise<Buffer> {
  // The same letters typed on another keyboard may be other code points: NFKC makes them one.
  const message = password.normalize('NFKC');
  const parameters = { message, nonce, memory: m, passes: t, parallelism: p, tagLength };
  return new Promise((resolve, reject) => {
    argon2('argon2id', parameters, (error, key) => (error === null ? resolve(key) : reject(error)));
  });
}
