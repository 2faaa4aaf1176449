/**
 * One spelling per phone number (rule 2). Four forms, none of which can equal another:
 *
 * - `+4930123456`: E.164, for what starts with `+` or `00`, or is national with `SLUICE_DEFAULT_COUNTRY`.
 * - `+4930123456;ext=12`: an extension is another telephone, so it stays.
 * - `digits:030123456`: digits and punctuation that are not such a number.
 * - `text:1-800-FLOWERS`: something else stands between the digits; taking it out would make two numbers one.
 *
 * Invariant: normalising a normalised number changes nothing, whatever the default country. Limit: which numbers are
 * possible is libphonenumber's knowledge, so its version is pinned; only length and form are checked, not assignment.
 */

import { createRequire } from 'node:module';
import type { PhoneNumber } from 'libphonenumber-js/min';

type Library = typeof import('libphonenumber-js/min');

const DIGITS_FORM = /^digits:[0-9]+$/;
const TEXT_PREFIX = 'text:';

/** What people write around and between the digits of a number. */
const PUNCTUATION = /[\s+()[\]./\-‐-―−·•_~*]/g;
const OTHER_DIGITS = /[٠-٩۰-۹]/g;
const LEAD_IN = /^(?:tel:)?[\s([]*/i;
/** Each round takes at most one national prefix away. */
const PARSE_ROUNDS_MAX = 4;

/** `text` is trimmed and in NFC. */
export function normalisePhoneNumber(text: string, defaultCountry: string | null): string {
  if (DIGITS_FORM.test(text) || text.startsWith(TEXT_PREFIX)) return text;
  const dialled = asciiOf(text).replace(LEAD_IN, '');
  const international = internationalOf(dialled, defaultCountry);
  if (international !== null) return international;
  const digits = dialled.replace(PUNCTUATION, '');
  return /^[0-9]+$/.test(digits) ? `digits:${digits}` : `${TEXT_PREFIX}${text}`;
}

/** Rule 3 for phone numbers: one without a digit other than zero is junk. */
export function isPhoneNumberJunk(text: string): boolean {
  return !/[1-9]/.test(text) && !/[1-9]/.test(asciiOf(text));
}

function asciiOf(text: string): string {
  // Compatibility forms make full-width digits, plus signs and hard spaces the plain ones.
  return text.normalize('NFKC').replace(OTHER_DIGITS, (digit) => String(digit.charCodeAt(0) & 15));
}

function internationalOf(dialled: string, defaultCountry: string | null): string | null {
  if (dialled.startsWith('+')) return e164Of(parse(dialled, null), dialled);
  if (!dialled.startsWith('00')) return defaultCountry === null ? null : e164Of(parse(dialled, defaultCountry));
  const abroad = parse(`+${dialled.slice(2)}`, null);
  if (defaultCountry === null) return e164Of(abroad);
  // Some countries use a longer international prefix, such as 0011: then the digits after 00 are not a calling code.
  const local = parse(dialled, defaultCountry);
  if (local !== undefined && local.countryCallingCode !== callingCodeOf(defaultCountry)) return e164Of(local);
  return e164Of(abroad) ?? e164Of(local);
}

let loaded: Library | undefined;

/** Loading it takes 60 ms of CPU in each of several threads: too slow for a server start. */
function library(): Library {
  loaded ??= createRequire(import.meta.url)('libphonenumber-js/min') as Library;
  return loaded;
}

function parse(text: string, defaultCountry: string | null): PhoneNumber | undefined {
  const { isSupportedCountry, parsePhoneNumberFromString } = library();
  return defaultCountry !== null && isSupportedCountry(defaultCountry)
    ? parsePhoneNumberFromString(text, { defaultCountry, extract: false })
    : parsePhoneNumberFromString(text, { extract: false });
}

function callingCodeOf(country: string): string | undefined {
  const { getCountryCallingCode, isSupportedCountry } = library();
  return isSupportedCountry(country) ? getCountryCallingCode(country) : undefined;
}

function e164Of(parsed: PhoneNumber | undefined, dialled = ''): string | null {
  const extension = parsed?.ext === undefined || parsed.ext === '' ? '' : `;ext=${parsed.ext}`;
  let number = parsed;
  // Written as it will be stored: parsing it again would say the same.
  if (parsed !== undefined && parsed.number === dialled && parsed.isPossible()) return parsed.number;
  for (let round = 0; round < PARSE_ROUNDS_MAX && number?.isPossible() === true; round++) {
    const again = parse(number.number, null);
    if (again?.number === number.number) return again.number + extension;
    number = again;
  }
  return null;
}
