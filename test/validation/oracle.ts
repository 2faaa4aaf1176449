/**
 * The rules for users once more, slow and obvious, to check the fast ones against. A list of rules, each a function
 * over the whole user, taken in order. Written apart from `src/validation/`, from which it imports nothing: other
 * loops, regular expressions instead of character codes, `Date` and `BigInt` instead of calendar arithmetic.
 */

type Members = Record<string, unknown>;
type Rule = (user: Members) => string | undefined;

const isMembers = (value: unknown): value is Members =>
  Object.prototype.toString.call(value) === '[object Object]' && !Array.isArray(value);
const own = (object: unknown, name: string): unknown =>
  isMembers(object) && Object.hasOwn(object, name) ? object[name] : undefined;
const isThere = (value: unknown): boolean => value !== undefined && value !== null;
const isFilled = (value: unknown): boolean => typeof value === 'string' && /\S/.test(value);
const characters = (text: string): number => Array.from(text).length;
const eventsOf = (user: Members): unknown[] => own(user, 'events') as unknown[];

const FOUR = ['user_id', 'email', 'phone_number', 'anon_id'];

function forEachEvent(check: (event: unknown, path: string) => string | undefined): Rule {
  return (user) =>
    eventsOf(user)
      .map((event, index) => check(event, `events[${index}]`))
      .find((message) => message !== undefined);
}

interface Visit {
  /** Path of the object that holds the key, or of the value. */
  readonly path: string;
  /** The property that this belongs to. */
  readonly property: string;
  /** The key or the value, whichever is visited. */
  readonly key?: string;
  readonly value?: unknown;
  /** Arrays and objects inside one another, within the property, this one included. */
  readonly depth: number;
}

function step(path: string, key: string): string {
  const name = characters(key) > 512 ? `${key.slice(0, 512)}…` : key;
  const plain = /^[a-z_$][\w$]*$/i.test(name);
  if (plain) return path === '' ? name : `${path}.${name}`;
  return `${path === '' ? 'user' : path}[${JSON.stringify(name)}]`;
}

/** Of a path that is very long, the first and the last 600 characters. */
function shown(path: string): string {
  if (path === '') return 'user';
  return path.length > 1_200 ? `${path.slice(0, 600).toWellFormed()}…${path.slice(-600).toWellFormed()}` : path;
}

/** Every key and every value of a user in order, a key before its value, with an explicit stack. */
function visits(user: Members): Visit[] {
  interface Pending extends Visit {
    readonly isContainer: boolean;
  }
  const found: Visit[] = [];
  const stack: Pending[] = [{ path: '', property: '', value: user, depth: 0, isContainer: true }];
  while (stack.length > 0) {
    const next = stack.pop() as Pending;
    found.push(next);
    if (next.depth > 70) continue;
    const children: Pending[] = [];
    const add = (path: string, value: unknown): void => {
      // The user, its three parts and the events are no properties: what is in them is.
      const isContainer =
        next.isContainer &&
        (path === 'identifiers' || path === 'user_properties' || path === 'events' || next.path === 'events');
      const depth = !isContainer && typeof value === 'object' && value !== null ? next.depth + 1 : next.depth;
      children.push({ path, property: next.isContainer ? path : next.property, value, depth, isContainer });
    };
    if (Array.isArray(next.value)) {
      for (const [index, value] of next.value.entries()) add(`${next.path}[${index}]`, value);
    } else if (isMembers(next.value)) {
      for (const [key, value] of Object.entries(next.value)) {
        children.push({ path: next.path, property: '', key, depth: 0, isContainer: false });
        add(step(next.path, key), value);
      }
    }
    stack.push(...children.toReversed());
  }
  return found;
}

const RULES: readonly Rule[] = [
  (user) => {
    const identifiers = own(user, 'identifiers');
    if (!isMembers(identifiers) || FOUR.some((name) => isFilled(own(identifiers, name)))) return undefined;
    const wrong = Object.keys(identifiers).find(
      (name) => FOUR.includes(name) && isThere(identifiers[name]) && typeof identifiers[name] !== 'string',
    );
    return wrong && `identifiers.${wrong} must be a string`;
  },
  (user) =>
    FOUR.some((name) => isFilled(own(own(user, 'identifiers'), name)))
      ? undefined
      : 'at least one identifier is required (user_id, email, phone_number, or anon_id)',
  (user) => {
    const events = own(user, 'events');
    return Array.isArray(events) && events.length > 0 ? undefined : 'events array is required and must not be empty';
  },
  (user) => {
    const wrong = Object.entries(own(user, 'identifiers') as Members).find(
      ([, value]) => isThere(value) && typeof value !== 'string',
    );
    return wrong && `${step('identifiers', wrong[0])} must be a string`;
  },
  (user) => {
    const long = Object.entries(own(user, 'identifiers') as Members).find(
      ([name, value]) => FOUR.includes(name) && isThere(value) && characters(value as string) > 512,
    );
    return long && `identifiers.${long[0]} must be at most 512 characters`;
  },
  (user) => {
    const properties = own(user, 'user_properties');
    return isThere(properties) && !isMembers(properties) ? 'user_properties must be an object' : undefined;
  },
  forEachEvent((event, path) => (isMembers(event) ? undefined : `${path} must be an object`)),
  forEachEvent((event, path) => {
    const name = own(event, 'event_name');
    const text = `${path}.event_name is required and must be a non-empty string`;
    if (!isFilled(name)) return text;
    return characters(name as string) > 512 ? `${text} of at most 512 characters` : undefined;
  }),
  forEachEvent((event, path) => {
    const time = own(event, 'timestamp');
    if (!isThere(time) || (typeof time === 'string' && oracleIso8601(time) !== undefined)) return undefined;
    return `${path}.timestamp must be an ISO 8601 timestamp`;
  }),
  forEachEvent((event, path) => {
    const wrong = ['revenue', 'event_value'].find((name) => {
      const value = own(event, name);
      return isThere(value) && !(typeof value === 'number' && Math.abs(value) < Infinity);
    });
    return wrong && `${path}.${wrong} must be a number`;
  }),
  forEachEvent((event, path) => {
    const id = own(event, '$event_id');
    if (!isThere(id) || (typeof id === 'string' && characters(id) >= 1 && characters(id) <= 255)) return undefined;
    return `${path}.$event_id must be a string of 1 to 255 characters`;
  }),
  (user) => {
    for (const visit of visits(user)) {
      if (visit.key !== undefined && characters(visit.key) > 512) {
        return `${shown(visit.path)} has a key longer than 512 characters`;
      }
      if (visit.depth > 64) return `${shown(visit.property)} is nested too deeply`;
    }
    return undefined;
  },
  (user) => {
    const bad = visits(user).find(({ key, value }) =>
      [key, value].some((text) => typeof text === 'string' && /[\0\p{Surrogate}]/u.test(text)),
    );
    return bad && `${shown(bad.path)} contains a character that cannot be stored`;
  },
];

/** The message for a user, or null if the user is valid. */
export function oracle(user: unknown): string | null {
  if (!isMembers(user)) return 'user must be an object';
  for (const rule of RULES) {
    const message = rule(user);
    if (message !== undefined) return message;
  }
  return null;
}

const ISO_8601 =
  /^(?<year>\d{4})(?<dash>-?)(?<month>\d\d)\k<dash>(?<day>\d\d)(?<time>T(?<hour>\d\d)(?:(?<colon>:?)(?<minute>\d\d)(?:\k<colon>(?<second>\d\d))?)?(?:[.,](?<fraction>\d+))?(?:Z|(?<sign>[+-])(?<offsetHour>\d\d)(?::?(?<offsetMinute>\d\d))?)?)?$/;

/** Milliseconds since 1970, or undefined; by a regular expression and `Date`. */
export function oracleIso8601(text: string): number | undefined {
  const parts = ISO_8601.exec(text)?.groups;
  if (parts === undefined) return undefined;
  const number = (name: string): number => Number(parts[name] ?? 0);
  const date = new Date(0);
  date.setUTCFullYear(number('year'), number('month') - 1, number('day'));
  const sameDay = date.getUTCMonth() === number('month') - 1 && date.getUTCDate() === number('day');
  if (!sameDay) return undefined;
  if (parts.time === undefined) return date.getTime();
  if (parts.minute !== undefined && (parts.colon === ':') !== (parts.dash === '-')) return undefined;

  const [hour, minute, second] = [number('hour'), number('minute'), number('second')];
  const fraction = (parts.fraction ?? '').replace(/0+$/, '');
  if (minute > 59 || second > 60 || (second === 60 && minute !== 59)) return undefined;
  if (hour > 24 || (hour === 24 && (minute > 0 || second > 0 || fraction !== ''))) return undefined;
  if (number('offsetHour') > 23 || number('offsetMinute') > 59) return undefined;

  const unit = parts.second !== undefined ? 1_000n : parts.minute !== undefined ? 60_000n : 3_600_000n;
  const counted = (parts.fraction ?? '').slice(0, 9).padEnd(9, '0');
  const local = ((hour * 60 + minute) * 60 + second) * 1000 + Number((BigInt(counted) * unit) / 1_000_000_000n);
  const offset = (number('offsetHour') * 60 + number('offsetMinute')) * 60_000;
  const moment = date.getTime() + local - (parts.sign === '-' ? -offset : offset);
  return /^\d{4}-/.test(new Date(moment).toISOString()) ? moment : undefined;
}
