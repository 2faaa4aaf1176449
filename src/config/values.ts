/**
 * How the values of settings are parsed and formatted: whole numbers, sizes, times, choices. Each kind describes what
 * it expects, for the message about an invalid value.
 */

import { isIP } from 'node:net';
import { DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS } from '../model.ts';
import { networksOf, PROXIES_EXPECTED } from './trusted-proxies.ts';

/** How a kind of value is read and written. `parse` gives undefined for what is not as `expected` says. */
export interface Kind<T> {
  /** Stands for the value in --help. */
  readonly placeholder: string;
  readonly expected: string;
  /** Where only these are allowed. */
  readonly choices?: readonly string[];
  /** A value may hold a password: `format` hides it, and a value that is refused is not repeated. */
  readonly isSecret?: boolean;
  readonly parse: (text: string) => T | undefined;
  format(value: T): string;
}

const KB = 1_024;
export const MB = 1_024 * KB;
export const GB = 1_024 * MB;
const BYTE_UNITS = { B: 1, kB: KB, MB, GB };
const DURATION_UNITS_MS = { ms: 1, s: SECOND_MS, m: MINUTE_MS, h: HOUR_MS, d: DAY_MS };
/** Longer than any clock will run. */
export const FOREVER_MS = Number.MAX_SAFE_INTEGER;

/** `7d`, `1.5h`, `500ms` in milliseconds; undefined for anything else. A number alone has no meaning but for 0. */
export function parseDurationMs(text: string): number | undefined {
  return parseWithUnit(text, DURATION_UNITS_MS, undefined);
}

function formatDuration(milliseconds: number): string {
  return formatWithUnit(milliseconds, DURATION_UNITS_MS);
}

export function integer(min: number, max: number): Kind<number> {
  return {
    placeholder: 'N',
    expected: `a whole number from ${min} to ${max}`,
    parse: (text) => (/^\d+$/.test(text) ? within(Number(text), min, max) : undefined),
    format: String,
  };
}

export function bytes(min: number): Kind<number> {
  const format = (value: number): string => formatWithUnit(value, BYTE_UNITS);
  return {
    placeholder: 'SIZE',
    expected: `a size of ${format(min)} or more, such as 64MB (units B, kB, MB, GB; 1kB is 1024 bytes)`,
    parse: (text) => within(parseWithUnit(text.replace(/iB$/i, 'B'), BYTE_UNITS, 1), min, Number.MAX_SAFE_INTEGER),
    format,
  };
}

export function duration(min: number, max: number): Kind<number> {
  const range = max === FOREVER_MS ? '' : ` from ${formatDuration(min)} to ${formatDuration(max)}`;
  return {
    placeholder: 'TIME',
    expected: `a time${range}, such as 30s (units ms, s, m, h, d)`,
    parse: (text) => within(parseDurationMs(text), min, max),
    format: formatDuration,
  };
}

/** A number of connections, or `auto`, which is 0. */
export const connections: Kind<number> = orWord(integer(1, 1_000_000), 'auto', 0);

export function retention(min = 0): Kind<number> {
  return orWord(duration(min, FOREVER_MS), 'forever', FOREVER_MS, min === 0 ? '' : `, ${formatDuration(min)} or more`);
}

/** The same, or a word for one value. */
function orWord(kind: Kind<number>, word: string, meaning: number, range = ''): Kind<number> {
  return {
    ...kind,
    expected: `${kind.expected}${range}, or "${word}"`,
    parse: (given) => (given.toLowerCase() === word ? meaning : kind.parse(given)),
    format: (value) => (value === meaning ? word : kind.format(value)),
  };
}

export function choice<const T extends string>(placeholder: string, choices: readonly T[]): Kind<T> {
  const parse = (text: string): T | undefined => choices.find((choice) => choice === text.toLowerCase());
  return { ...text(placeholder, `one of ${choices.join(', ')}`, parse), choices };
}

/** Shown as it is stored. */
function text<T extends string>(placeholder: string, expected: string, parse: Kind<T>['parse']): Kind<T> {
  return { placeholder, expected, parse, format: (value) => value };
}

export const country: Kind<string> = text('CODE', 'a country code of two letters, such as DE', (given) =>
  /^([a-z]{2})?$/i.test(given) ? given.toUpperCase() : undefined,
);

export const list: Kind<string> = text('LIST', 'values separated by commas', (given) => given);

export const folder: Kind<string> = text('FOLDER', 'the path of a folder', (given) => given || undefined);

export const host: Kind<string> = text('ADDRESS', 'an IP address or a host name, without a port', (given) =>
  isIP(given) !== 0 || /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/i.test(given) ? given : undefined,
);

/** Where a server is reached, or nothing: scheme and host, as browsers write it. */
export const origin: Kind<string> = text(
  'URL',
  'an address such as https://sluice.example, http or https, without a path',
  (given) => {
    if (given === '') return given;
    return /^https?:\/\/[^/?#@\s\\]+\/?$/i.test(given) ? URL.parse(given)?.origin : undefined;
  },
);

/** Proxies that are believed, as `trusted-proxies.ts` reads them, or nothing. */
export const proxies: Kind<string> = text('LIST', PROXIES_EXPECTED, (given) => {
  if (given.toLowerCase() === 'none') return '';
  return networksOf(given) === undefined ? undefined : given;
});

export const storeUrl: Kind<string> = secretUrl(
  'the address of a database, such as postgres://user:password@host:5432/sluice (special characters of the password percent-encoded: / as %2F)',
  (given) => {
    const url = /^postgres(ql)?:\/\/\S*$/i.test(given) ? URL.parse(given) : null;
    return url !== null && url.pathname.length >= 2;
  },
);

/** The address of a topic in Kafka, or nothing. Several brokers are not a valid URL, so it is parsed by hand. */
export function logUrl(): Kind<string> {
  const broker = String.raw`(\[[0-9a-f:.]+\]|[a-z0-9]([a-z0-9._-]*[a-z0-9])?)(:\d{1,5})?`;
  const whole = new RegExp(String.raw`^kafka://([^/@\s]*@)?${broker}(,${broker})*/[a-z0-9._-]{1,249}(\?\S*)?$`, 'i');
  const expected = 'the address of a topic, such as kafka://host:9092/sluice (several brokers: host:9092,host:9092)';
  return secretUrl(expected, (given) => whole.test(given));
}

function secretUrl(expected: string, isUrl: (given: string) => boolean): Kind<string> {
  const kind = text<string>('URL', expected, (given) => (given === '' || isUrl(given) ? given : undefined));
  return { ...kind, isSecret: true, format: withoutSecrets };
}

const SECRET_PARAMETER = /pass|secret|token|key/i;

/** An address as it may be shown: no password, wherever in it that stands. Anything else is left as it is. */
export function withoutSecrets(url: string): string {
  const [, scheme, rest = ''] = /^([a-z]+:\/\/)(.*)$/is.exec(url) ?? [];
  if (scheme === undefined) return url;
  // The operator may have forgotten to escape a password: then what looks like a query may be a part of it.
  const firstQueryAt = rest.indexOf('?');
  const isAfterUser = firstQueryAt >= 0 && (rest.slice(0, firstQueryAt).includes('@') || !rest.includes('@'));
  const queryAt = isAfterUser ? firstQueryAt : rest.indexOf('?', rest.lastIndexOf('@') + 1);
  const place = queryAt < 0 ? rest : rest.slice(0, queryAt);
  const parameters = queryAt < 0 ? [] : rest.slice(queryAt + 1).split('&');
  const at = place.lastIndexOf('@');
  const [user = '', ...password] = place.slice(0, Math.max(at, 0)).split(':');
  const shownUser = at < 0 ? '' : `${user}${password.length > 0 ? ':…' : ''}@`;
  const shown = parameters.map((parameter) => {
    const [name = ''] = parameter.split('=');
    return SECRET_PARAMETER.test(name) ? `${name}=…` : parameter;
  });
  return `${scheme}${shownUser}${place.slice(at + 1)}${shown.length > 0 ? `?${shown.join('&')}` : ''}`;
}

function within(value: number | undefined, min: number, max: number): number | undefined {
  return value !== undefined && value >= min && value <= max ? value : undefined;
}

/** `unitless` is what a number alone is counted in. */
function parseWithUnit(
  text: string,
  units: Readonly<Record<string, number>>,
  unitless: number | undefined,
): number | undefined {
  const match = /^(\d+(?:\.\d+)?)\s*([a-z]*)$/i.exec(text);
  if (match === null) return undefined;
  const [, amount = '', given = ''] = match;
  const unit = Object.keys(units).find((name) => name.toLowerCase() === given.toLowerCase());
  const factor =
    unit !== undefined ? units[unit] : given === '' ? (unitless ?? (Number(amount) === 0 ? 1 : undefined)) : undefined;
  if (factor === undefined) return undefined;
  const value = Math.round(Number(amount) * factor);
  return Number.isSafeInteger(value) ? value : undefined;
}

/** In the largest unit that leaves a whole number. */
function formatWithUnit(value: number, units: Readonly<Record<string, number>>): string {
  const fitting = Object.entries(units).filter(([, factor]) => value !== 0 && value % factor === 0);
  const [unit, factor] = fitting.at(-1) ?? ['', 1];
  return `${value / factor}${unit}`;
}
