/**
 * Reads ISO 8601 calendar dates and date-times, in the extended (`2026-11-15T10:20:30.123Z`) and the basic
 * (`20261115T102030.123Z`) form. A day is always named in full (four-digit year, month, day); the time may stop after
 * hours or minutes, and its lowest component may have a fraction. Without an offset the time is UTC. In UTC its year is
 * from 0000 to 9999, so that it can be shown in the same form.
 *
 * `Date.parse` is not used: it accepts what is not ISO 8601, refuses much that is, and turns 30 February into 2 March.
 * The first nine digits of a fraction count; what is below a millisecond is cut off, never rounded.
 */

import { DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS } from '../model.ts';

const FRACTION_DIGITS_MAX = 9;

const DAYS_BEFORE_MONTH = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334] as const;
const DAYS_IN_MONTH = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] as const;
/** Days from 1 January of the year 0 to 1 January 1970, by the Gregorian calendar throughout. */
const DAYS_BEFORE_1970 = 719_528;

/** Among the 399 years before it. */
const LEAP_DAYS_BEFORE_YEAR_0 = 96;

/** An offset can lead beyond these, where UTC has no year of four digits. */
const EARLIEST = Date.parse('0000-01-01T00:00:00.000Z');
const LATEST = Date.parse('9999-12-31T23:59:59.999Z');

const MINUS = 0x2d;
const POINT = 0x2e;
const COLON = 0x3a;
const ZERO = 0x30;
const UPPER_T = 0x54;
const UPPER_Z = 0x5a;

/** Year, dash, month, day, hour, colon, minute, second, fraction, offset. */
const FORM =
  /^(\d{4})(-?)(\d\d)\2(\d\d)(?:T(\d\d)(?:(:?)(\d\d)(?:\6(\d\d))?)?(?:[.,](\d+))?(Z|[+-]\d\d(?::?\d\d)?)?)?$/;

/** Milliseconds since 1970, or undefined if the text is not such a date or date-time. */
export function parseIso8601(text: string): number | undefined {
  const usual = usualTimeOf(text);
  if (!Number.isNaN(usual)) return usual;
  const [, year, dash, month, day, hour, colon, minute, second, fraction, offset] = FORM.exec(text) ?? [];
  if (year === undefined) return undefined;
  // Date and time are both in the extended form, or both in the basic one.
  if (minute !== undefined && (dash === '-') !== (colon === ':')) return undefined;
  const days = daysSince1970(Number(year), Number(month), Number(day));
  if (hour === undefined) return Number.isNaN(days) ? undefined : days * DAY_MS;
  const milliseconds = days * DAY_MS + timeOfDay(hour, minute, second, fraction) - offsetOf(offset);
  return milliseconds >= EARLIEST && milliseconds <= LATEST ? milliseconds : undefined;
}

/** As it is written nearly always: `2026-11-15T10:20:30.123Z`. */
export const USUAL_TIME_LENGTH = 24;

const usualCodes = new Uint16Array(USUAL_TIME_LENGTH);

function usualTimeOf(text: string): number {
  if (text.length !== USUAL_TIME_LENGTH) return Number.NaN;
  for (let at = 0; at < USUAL_TIME_LENGTH; at++) usualCodes[at] = text.charCodeAt(at);
  return parseUsualTime(usualCodes, 0);
}

/** The same for a time that is written like that, and begins there; NaN for any other text. */
export function parseUsualTime(codes: ArrayLike<number>, at: number): number {
  const isUsual =
    codes[at + 4] === MINUS &&
    codes[at + 7] === MINUS &&
    codes[at + 10] === UPPER_T &&
    codes[at + 13] === COLON &&
    codes[at + 16] === COLON &&
    codes[at + 19] === POINT &&
    codes[at + 23] === UPPER_Z;
  if (!isUsual) return Number.NaN;
  const century = twoDigitsOf(codes, at);
  const yearOfCentury = twoDigitsOf(codes, at + 2);
  const month = twoDigitsOf(codes, at + 5);
  const day = twoDigitsOf(codes, at + 8);
  const hour = twoDigitsOf(codes, at + 11);
  const minute = twoDigitsOf(codes, at + 14);
  const second = twoDigitsOf(codes, at + 17);
  const hundredths = twoDigitsOf(codes, at + 20);
  const thousandths = (codes[at + 22] as number) - ZERO;
  if ((century | yearOfCentury | month | day | hour | minute | second | hundredths | thousandths) < 0)
    return Number.NaN;
  // Unusual are also the end of a day written as 24:00, and leap seconds.
  if (hour > 23 || minute > 59 || second > 59 || thousandths > 9) return Number.NaN;
  const timeOfDayMs = hour * HOUR_MS + minute * MINUTE_MS + second * SECOND_MS + hundredths * 10 + thousandths;
  return daysSince1970(century * 100 + yearOfCentury, month, day) * DAY_MS + timeOfDayMs;
}

/** NaN if there is no such day; any NaN among the arguments ends up there too. */
function daysSince1970(year: number, month: number, day: number): number {
  if (!(year >= 0 && month >= 1 && month <= 12 && day >= 1)) return Number.NaN;
  const leap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  const monthDays = (DAYS_IN_MONTH[month - 1] ?? 0) + (leap && month === 2 ? 1 : 0);
  if (day > monthDays) return Number.NaN;
  // Counted from 400 years earlier, so that nothing is negative and the divisions are on integers, which is much
  // faster.
  const before = year + 399;
  const leapDaysBefore = (before >> 2) - ((before / 100) | 0) + ((before / 400) | 0) - LEAP_DAYS_BEFORE_YEAR_0;
  const dayOfYear = (DAYS_BEFORE_MONTH[month - 1] ?? 0) + (leap && month > 2 ? 1 : 0) + day - 1;
  return year * 365 + leapDaysBefore + dayOfYear - DAYS_BEFORE_1970;
}

/** Milliseconds from midnight; NaN if there is no such time. */
function timeOfDay(
  hourText: string,
  minuteText: string | undefined,
  secondText: string | undefined,
  digits = '',
): number {
  const hour = Number(hourText);
  const minute = Number(minuteText ?? 0);
  const second = Number(secondText ?? 0);
  const isTime = hour <= 23 && minute <= 59 && (second <= 59 || (second === 60 && minute === 59));
  const isEndOfDay = hour === 24 && minute + second === 0 && !/[^0]/.test(digits);
  if (!isTime && !isEndOfDay) return Number.NaN;
  const lowestMs = secondText !== undefined ? SECOND_MS : minuteText !== undefined ? MINUTE_MS : HOUR_MS;
  const counted = digits.slice(0, FRACTION_DIGITS_MAX);
  // Nine digits times 3,600,000 stay below 2^53, so the product is exact and the cut falls where it should.
  const fractionMs = Math.floor((Number(counted) * lowestMs) / 10 ** counted.length);
  return hour * HOUR_MS + minute * MINUTE_MS + second * SECOND_MS + fractionMs;
}

/** Milliseconds to take off to get to UTC: for nothing, `Z`, `±hh`, `±hhmm` or `±hh:mm`; NaN if there is no such offset. */
function offsetOf(offset = 'Z'): number {
  if (offset === 'Z') return 0;
  const hour = Number(offset.slice(1, 3));
  const minute = offset.length === 3 ? 0 : Number(offset.slice(-2));
  if (hour > 23 || minute > 59) return Number.NaN;
  const milliseconds = hour * HOUR_MS + minute * MINUTE_MS;
  return offset.startsWith('+') ? milliseconds : -milliseconds;
}

/** Negative unless there are two digits; an integer, because sums of integers take a fraction of the time. */
function twoDigitsOf(codes: ArrayLike<number>, at: number): number {
  const tens = (codes[at] as number) - ZERO;
  const ones = (codes[at + 1] as number) - ZERO;
  return tens >= 0 && tens <= 9 && ones >= 0 && ones <= 9 ? tens * 10 + ones : -1;
}
