/**
 * Passwords: which are taken, and how they are kept. scrypt makes each guess cost about 100 ms and 32 MB, for an attacker
 * who has the file as for us; the parameters stand with each hash, so they can be raised later without locking anybody
 * out. Because it costs that much, an edge computes few at once and lets few wait: beyond that the answer is 503, and
 * events are still taken. An e-mail that is nobody's costs the same as a wrong password.
 */

import { randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { isLongerThan, isStorable } from '../validation/characters.ts';

export const PASSWORD_CHARACTERS_MIN = 10;
export const PASSWORD_CHARACTERS_MAX = 200;

const COST = { N: 32_768, r: 8, p: 1 } as const;
/** Twice what the cost above needs: a stored hash with more than this is not ours. */
const MEMORY_BYTES_MAX = 2 * 128 * COST.N * COST.r;
const SALT_BYTES = 16;
const HASH_BYTES = 32;
const STORED = /^scrypt\$(\d+)\$(\d+)\$(\d+)\$([\w-]+)\$([\w-]+)$/;

/**
 * Over all edges, as far as each computing one allows: libuv has one pool of four threads for the whole process, and
 * bodies that came compressed wait for it as well.
 */
const RUNNING_MAX = 2;
/** The last in line waits about a second. */
const WAITING_MAX = 18;

/** More people want to sign in at this moment than may: the answer is 503. */
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
  /** What is compared with for e-mails of nobody; no password gives it. */
  readonly #nobody = stored(COST, randomBytes(SALT_BYTES), randomBytes(HASH_BYTES));

  /** `edges`: how many there are in this process, each with one of these. */
  constructor(edges = 1) {
    this.#runningMax = Math.max(1, Math.floor(RUNNING_MAX / edges));
  }

  /** Rejects with `TooBusyError` when too many wait already. */
  async hash(password: string): Promise<string> {
    const salt = randomBytes(SALT_BYTES);
    return stored(COST, salt, await this.#derive(password, salt, COST));
  }

  /** Whether it is the password behind the hash; for an undefined one it takes as long, and is false. */
  async verify(password: string, passwordHash: string | undefined): Promise<boolean> {
    const [, N, r, p, salt = '', hash = ''] = STORED.exec(passwordHash ?? this.#nobody) ?? [];
    if (N === undefined) throw new Error('a password hash is not in the form that this version knows');
    const expected = Buffer.from(hash, 'base64url');
    const cost = { N: Number(N), r: Number(r), p: Number(p) };
    const given = await this.#derive(password, Buffer.from(salt, 'base64url'), cost);
    return timingSafeEqual(given, expected) && passwordHash !== undefined;
  }

  /** Whether the next call would be refused. */
  get isFull(): boolean {
    return this.#waiting.length >= WAITING_MAX;
  }

  async #derive(password: string, salt: Buffer, cost: Cost): Promise<Buffer> {
    await this.#turn();
    try {
      return await derive(password, salt, cost);
    } finally {
      const next = this.#waiting.shift();
      // Who waits takes the place over; nobody can slip in between.
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }

  async #turn(): Promise<void> {
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

type Cost = Readonly<Record<'N' | 'r' | 'p', number>>;

/** The same letters typed on another keyboard may be other code points: NFKC makes them one. */
function derive(password: string, salt: Buffer, cost: Cost): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const options = { ...cost, maxmem: MEMORY_BYTES_MAX };
    scrypt(password.normalize('NFKC'), salt, HASH_BYTES, options, (error, key) => {
      if (error === null) resolve(key);
      else reject(error);
    });
  });
}

function stored({ N, r, p }: Cost, salt: Buffer, hash: Buffer): string {
  return ['scrypt', N, r, p, salt.toString('base64url'), hash.toString('base64url')].join('$');
}
