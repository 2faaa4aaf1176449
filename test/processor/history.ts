/**
 * A mixed history of requests, the same for the same seed: several tenants; new and known people; logins, shared devices
 * and junk; users that are rejected; secret and publishable keys; repeated Idempotency-Keys and event ids; properties
 * that are deleted; digits beyond a double; odd timestamps; a clock that jumps now and then. Every body is judged by the
 * real validation, so an entry is what the edge would have appended.
 */

import assert from 'node:assert/strict';
import type { LogEntry } from '../../src/log.ts';
import { DAY_MS, HOUR_MS, type KeyKind } from '../../src/model.ts';
import { validateBody } from '../../src/edge/validate-body.ts';

export const TENANTS = ['acct_a/production', 'acct_a/development', 'acct_b/production', 'acct_c/development'] as const;
export const HISTORY_START = Date.UTC(2026, 2, 1, 12);

/** Repeats are drawn from so many recent ones. */
const REMEMBERED = 200;

/** Numbers from 0 to 1. */
export type Random = () => number;

/** Small and fast, and good enough to mix a history: a multiplicative hash of a counter. */
export function randomOf(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
  };
}

/** Draws what makes up a history. */
export class Chooser {
  readonly #random: Random;

  constructor(random: Random) {
    this.#random = random;
  }

  chance(share: number): boolean {
    return this.#random() < share;
  }

  below(bound: number): number {
    return Math.floor(this.#random() * bound);
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }
}

export function entriesOf(seed: number, count: number, people = Math.ceil(count / 6)): LogEntry[] {
  const history = new History(randomOf(seed), people);
  return Array.from({ length: count }, () => history.next());
}

/** An entry as the edge would make it of this body; a body without a valid user is none. */
export function entryOf(
  users: readonly unknown[],
  about: Omit<LogEntry, 'body' | 'userCount' | 'eventCount' | 'rejections' | 'keyId'>,
): LogEntry {
  const body = Buffer.from(JSON.stringify({ users }));
  const summary = validateBody(body).validation;
  assert.ok(summary.ok && summary.rejections.length < summary.userCount, 'nothing here is valid');
  const { userCount, eventCount, rejections } = summary;
  return { ...about, keyId: 'key_test', body, userCount, eventCount, rejections };
}

/** A UUID of version 7 that needs no clock and no chance. */
export function traceIdOf(milliseconds: number, number: number): string {
  const time = milliseconds.toString(16).padStart(12, '0');
  const rest = number.toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-${rest}`;
}

const rawNumber = (digits: string): unknown => (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(digits);

const LONG_NUMBERS = ['12345678901234567890', '0.1234567890123456789', '-9007199254740993', '1e400'];
const JUNK = ['null', '0000-0000', 'undefined', 'Guest', '"none"'];
const NAMES = ['plan', 'city', '__proto__', 'constructor', 'score', 'größe', 'toString'];
const EVENTS = ['page_view', 'order', 'signed_in', 'Käufe ✓', '__proto__'];
const BAD_USERS = [null, { identifiers: {}, events: [{ event_name: 'a' }] }, { identifiers: { user_id: 'x' } }, 17];

class History extends Chooser {
  readonly #people: number;
  readonly #idempotencyKeys: string[] = [];
  /** By Idempotency-Key: what was sent with it first. */
  readonly #keyed = new Map<string, { readonly tenantId: string; readonly users: readonly unknown[] }>();
  readonly #eventIds: string[] = [];
  #count = 0;
  #clock = HISTORY_START;

  constructor(random: Random, people: number) {
    super(random);
    this.#people = people;
  }

  next(): LogEntry {
    this.#count += 1;
    this.#clock += this.#step();
    const idempotencyKey = this.chance(0.1) ? this.#sometimesAgain(this.#idempotencyKeys, 'once') : null;
    const { tenantId, users } = this.#request(idempotencyKey);
    const keyKind: KeyKind = this.chance(0.25) ? 'publishable' : 'secret';
    return entryOf(users, {
      // Not in the order of arrival within a millisecond, as from several edges.
      traceId: traceIdOf(this.#clock, (this.#count * 0x5bd1e995) % 2 ** 47),
      tenantId,
      receivedAt: this.#clock,
      keyKind,
      idempotencyKey,
    });
  }

  /** Most of those whose key was used before are retries; the others have another body. */
  #request(idempotencyKey: string | null): { readonly tenantId: string; readonly users: readonly unknown[] } {
    const before = idempotencyKey === null ? undefined : this.#keyed.get(idempotencyKey);
    if (before !== undefined && this.chance(0.6)) return before;
    const users: unknown[] = Array.from({ length: this.pick([1, 1, 1, 1, 2, 2, 3]) }, () => this.#user());
    if (this.chance(0.05)) users.splice(this.below(2), 0, this.pick(BAD_USERS));
    const made = { tenantId: before?.tenantId ?? this.pick(TENANTS), users };
    if (idempotencyKey !== null && before === undefined) this.#keyed.set(idempotencyKey, made);
    return made;
  }

  /** Mostly a moment; sometimes a night; now and then someone sets the clock, and back. */
  #step(): number {
    if (this.chance(0.6)) return 0;
    if (this.chance(0.995)) return this.below(400);
    return this.pick([DAY_MS, -DAY_MS, 30 * HOUR_MS, -HOUR_MS]);
  }

  #user(): unknown {
    const person = this.below(this.chance(0.3) ? Math.ceil(this.#people / 50) : this.#people);
    const properties = this.#properties();
    return {
      identifiers: { ...this.#identifiers(person), ...(this.chance(0.3) && { first_name: `N${this.below(9)}` }) },
      ...(properties && { user_properties: properties }),
      events: Array.from({ length: this.pick([1, 1, 1, 1, 2]) }, () => this.#event()),
    };
  }

  #identifiers(person: number): Record<string, string> {
    const anonId = `device-${person}-${this.below(3)}`;
    const userId = `user-${person}`;
    const email = this.chance(0.5) ? `p${person}@example.com` : ` P${person}@Example.COM `;
    const phone = `${this.pick(['+49 151 ', '0049-151-', '+49151'])}${String(10_000_000 + person)}`;
    switch (this.below(12)) {
      case 0:
      case 1:
        return { anon_id: anonId };
      case 2:
        return { anon_id: anonId, user_id: userId };
      case 3:
        return { email, anon_id: anonId };
      case 4:
        return { user_id: userId, email, phone_number: phone };
      case 5:
        return { phone_number: phone };
      // Two people on one device, or one who types in the address of another: rule 6.
      case 6:
        return { user_id: userId, anon_id: `device-${this.below(this.#people)}-0` };
      case 7:
        return { user_id: userId, email: `p${this.below(this.#people)}@example.com` };
      case 8:
        return { user_id: this.pick(JUNK), ...(this.chance(0.5) && { anon_id: anonId }) };
      default:
        return { user_id: userId };
    }
  }

  #properties(): Record<string, unknown> | null {
    if (this.chance(0.6)) return null;
    return Object.fromEntries(Array.from({ length: 1 + this.below(3) }, () => [this.pick(NAMES), this.#value()]));
  }

  #value(): unknown {
    switch (this.below(7)) {
      case 0:
        return null;
      case 1:
        return rawNumber(this.pick(LONG_NUMBERS));
      case 2:
        return [this.below(5), { deep: null, ['__proto__']: 'data' }];
      case 3:
        return this.below(1_000) / 10;
      default:
        return `v${this.below(50)}`;
    }
  }

  #event(): Record<string, unknown> {
    return {
      event_name: this.pick(EVENTS),
      ...(this.chance(0.4) && { timestamp: this.#timestamp() }),
      ...(this.chance(0.3) && {
        ...(this.chance(0.5) && { currency: this.pick(['EUR', 'usd', 'Euro']) }),
        revenue: this.chance(0.9) ? this.below(10_000) / 100 : rawNumber('0.10000000000000000001'),
      }),
      ...(this.chance(0.1) && { event_value: rawNumber(this.pick(LONG_NUMBERS.slice(0, 3))) }),
      ...(this.chance(0.15) && { $event_id: this.#sometimesAgain(this.#eventIds, 'event') }),
      ...(this.chance(0.5) && { [this.pick(NAMES)]: this.#value() }),
    };
  }

  #timestamp(): string {
    const time = new Date(this.#clock - this.below(3 * DAY_MS)).toISOString();
    return this.pick([
      time,
      time.replace('Z', '+05:45'),
      time.replace('Z', '-02:30'),
      time.slice(0, 10),
      time.slice(0, 10).replaceAll('-', ''),
      time.slice(0, 16),
      `${time.slice(0, 19)},5Z`,
      '2099-12-31T23:59:59.999Z',
      '1970-01-01',
      '0001-01-01T00:00:00+14:00',
    ]);
  }

  /** New, or one of the latest again. */
  #sometimesAgain(used: string[], prefix: string): string {
    if (used.length > 0 && this.chance(0.35)) return this.pick(used.slice(-REMEMBERED));
    const fresh = `${prefix}-${this.#count}-${used.length}`;
    used.push(fresh);
    return fresh;
  }
}
