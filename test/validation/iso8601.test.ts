/** ISO 8601 by hand-made tables, against `Date.prototype.toISOString`, and against the oracle on random texts. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { parseIso8601, parseUsualTime, USUAL_TIME_LENGTH } from '../../src/validation/iso8601.ts';
import { oracleIso8601 } from './oracle.ts';

/** Each text with the same moment as `toISOString` writes it. */
const ACCEPTED: Readonly<Record<string, readonly (readonly [text: string, moment: string])[]>> = {
  'dates in the extended and the basic form are midnight UTC': [
    ['2026-11-15', '2026-11-15T00:00:00.000Z'],
    ['20261115', '2026-11-15T00:00:00.000Z'],
    ['1970-01-01', '1970-01-01T00:00:00.000Z'],
    ['1969-12-31', '1969-12-31T00:00:00.000Z'],
    ['0000-01-01', '0000-01-01T00:00:00.000Z'],
    ['0000-03-01', '0000-03-01T00:00:00.000Z'],
    ['0001-01-01', '0001-01-01T00:00:00.000Z'],
    ['0099-12-31', '0099-12-31T00:00:00.000Z'],
    ['99991231', '9999-12-31T00:00:00.000Z'],
  ],
  'date-times in both forms stop after hours, minutes or seconds': [
    ['2026-11-15T10:20:30.123Z', '2026-11-15T10:20:30.123Z'],
    ['20261115T102030.123Z', '2026-11-15T10:20:30.123Z'],
    ['2026-11-15T10:20:30Z', '2026-11-15T10:20:30.000Z'],
    ['2026-11-15T10:20Z', '2026-11-15T10:20:00.000Z'],
    ['20261115T1020Z', '2026-11-15T10:20:00.000Z'],
    ['2026-11-15T10Z', '2026-11-15T10:00:00.000Z'],
    ['20261115T10Z', '2026-11-15T10:00:00.000Z'],
  ],
  'a time without an offset is UTC': [
    ['2026-11-15T10:20:30', '2026-11-15T10:20:30.000Z'],
    ['20261115T10', '2026-11-15T10:00:00.000Z'],
    ['2026-11-15T10:20:30.5', '2026-11-15T10:20:30.500Z'],
  ],
  'offsets of every form are taken off, whatever the form of the date': [
    ['2026-11-15T10:20:30+01:00', '2026-11-15T09:20:30.000Z'],
    ['2026-11-15T10:20:30+0100', '2026-11-15T09:20:30.000Z'],
    ['2026-11-15T10:20:30+01', '2026-11-15T09:20:30.000Z'],
    ['20261115T102030-05:30', '2026-11-15T15:50:30.000Z'],
    ['20261115T102030-0530', '2026-11-15T15:50:30.000Z'],
    ['2026-11-15T10-05', '2026-11-15T15:00:00.000Z'],
    ['2026-01-01T00:30:00+14:00', '2025-12-31T10:30:00.000Z'],
    ['2026-12-31T23:30:00-23:59', '2027-01-01T23:29:00.000Z'],
    ['2026-11-15T10:20:30-00:00', '2026-11-15T10:20:30.000Z'],
  ],
  'a fraction belongs to the lowest component, after a point or a comma': [
    ['2026-11-15T10:20:30,5Z', '2026-11-15T10:20:30.500Z'],
    ['2026-11-15T10:20.5Z', '2026-11-15T10:20:30.000Z'],
    ['20261115T1020,25+01', '2026-11-15T09:20:15.000Z'],
    ['2026-11-15T10.5Z', '2026-11-15T10:30:00.000Z'],
    ['20261115T10,1', '2026-11-15T10:06:00.000Z'],
    ['2026-11-15T10.333333333Z', '2026-11-15T10:19:59.999Z'],
  ],
  'what is below a millisecond is cut off and never rounded': [
    ['2026-11-15T10:20:30.1239Z', '2026-11-15T10:20:30.123Z'],
    ['2026-11-15T10:20:30.999999999999999999999Z', '2026-11-15T10:20:30.999Z'],
    ['2026-11-15T10:20:30.29Z', '2026-11-15T10:20:30.290Z'],
    ['2026-11-15T10:20:30.0009Z', '2026-11-15T10:20:30.000Z'],
    ['1969-12-31T23:59:59.9999Z', '1969-12-31T23:59:59.999Z'],
  ],
  'hour 24 is midnight at the end of the day': [
    ['2026-11-15T24:00:00Z', '2026-11-16T00:00:00.000Z'],
    ['2026-12-31T24:00:00.000Z', '2027-01-01T00:00:00.000Z'],
    ['20261115T2400', '2026-11-16T00:00:00.000Z'],
    ['2026-11-15T24', '2026-11-16T00:00:00.000Z'],
  ],
  'a leap second is the second after it': [
    ['2016-12-31T23:59:60Z', '2017-01-01T00:00:00.000Z'],
    ['2017-01-01T00:59:60.25+01:00', '2017-01-01T00:00:00.250Z'],
    ['20161231T235960Z', '2017-01-01T00:00:00.000Z'],
  ],
  'the last days of months are accepted, leap years by the Gregorian rule': [
    ['2028-02-29', '2028-02-29T00:00:00.000Z'],
    ['2000-02-29', '2000-02-29T00:00:00.000Z'],
    ['20260228', '2026-02-28T00:00:00.000Z'],
    ['2026-04-30', '2026-04-30T00:00:00.000Z'],
    ['2026-12-31', '2026-12-31T00:00:00.000Z'],
  ],
};

const REJECTED: Readonly<Record<string, readonly string[]>> = {
  'days that do not exist are rejected': [
    ...['2026-02-29', '2026-02-30', '20260230', '1900-02-29', '2100-02-29', '2026-04-31', '2026-06-31', '2026-01-32'],
    ...['2026-00-10', '2026-13-10', '2026-01-00', '20261301', '2026-02-30T10:20:30Z'],
  ],
  'times that do not exist are rejected': [
    ...['2026-11-15T25:00:00Z', '2026-11-15T10:60:00Z', '2026-11-15T10:20:61Z', '2026-11-15T10:20:60Z'],
    ...['2026-11-15T24:00:01Z', '2026-11-15T24:01Z', '2026-11-15T24:00:00.001Z', '2026-11-15T24.5Z'],
    ...['2026-11-15T24:00:00.0000000000001Z', '2026-11-15T23:58:60Z', '2026-11-15T23:59:61Z', '20261115T999999'],
  ],
  'offsets that do not exist are rejected': [
    ...['2026-11-15T10:20:30+24:00', '2026-11-15T10:20:30+01:60', '2026-11-15T10:20:30+1', '2026-11-15T10:20:30+010'],
    ...['2026-11-15T10:20:30+01:0', '2026-11-15T10:20:30+', '2026-11-15T10:20:30+01:00:00', '2026-11-15T10:20:30Z+01'],
    ...[
      '2026-11-15T10:20:30ZZ',
      '2026-11-15T10:20:30 +01:00',
      '2026-11-15T10:20:30+01-00',
      '2026-11-15T10:20:30\u221201',
    ],
  ],
  'a date in one form with a time in the other is rejected': [
    ...['2026-11-15T102030Z', '20261115T10:20:30Z', '2026-11-15T1020', '20261115T10:20', '2026-1115', '202611-15'],
    ...['2026-11-15T10:2030Z', '20261115T1020:30Z'],
  ],
  'times whose year in UTC has not four digits are rejected': [
    ...['9999-12-31T23:59:59.999-00:01', '9999-12-31T24:00Z', '0000-01-01T00:00:00+00:01', '00000101T00+23'],
  ],
  'week dates, ordinal dates, dates without a day and other years are rejected': [
    ...['2026-W46-7', '2026W467', '2026-W46', '2026-319', '2026319', '2026-11', '2026', '202611', '--11-15'],
    ...['+002026-11-15', '-2026-11-15', '12026-11-15', '226-11-15', '26-11-15', '261115'],
  ],
  'small letters, spaces and other separators are rejected': [
    ...[
      '2026-11-15t10:20:30Z',
      '2026-11-15T10:20:30z',
      '2026-11-15 10:20:30Z',
      ' 2026-11-15',
      '2026-11-15 ',
      '2026-11-15\n',
    ],
    ...[
      '2026/11/15',
      '2026.11.15',
      '2026-11-15T10.20.30Z',
      '2026-11-15_10:20:30',
      '2026-11-15TT10',
      '2026-11-15T10:20:30.123 Z',
    ],
  ],
  'texts that are cut off or have too few digits are rejected': [
    ...[
      '',
      'T',
      'Z',
      '2026-11-15T',
      '2026-11-15Z',
      '2026-11-15+01:00',
      '2026-11-15T1',
      '2026-11-15T1Z',
      '2026-11-15T10:',
    ],
    ...['2026-11-15T10:2', '2026-11-15T10:20:', '2026-11-15T10:20:3Z', '2026-11-15T10:20:30.', '2026-11-15T10:20:30.Z'],
    ...[
      '2026-11-15T10:20:30..5Z',
      '2026-11-15T10:20:30.5.5Z',
      '2026-11-15T.5',
      '20261115T102',
      '20261115T10203',
      '2026-1-15',
    ],
    ...[
      '2026-11-15T10.5:20',
      '2026-11-15T10:20:30:40',
      '2026-11-15T-1:20:30',
      '2026-11-5T10:20:30Z',
      '2026-11-15T10:Z',
    ],
  ],
  'other ways to write a time are rejected': [
    ...['1763201630', '1763201630123', 'Sun, 15 Nov 2026 10:20:30 GMT', 'November 15, 2026', 'P1D', 'now', 'null'],
    ...['2026-11-15/2026-11-16', '٢٠٢٦-١١-١٥', '２０２６-11-15', '2026-11-15T10:20:30[Europe/Paris]'],
  ],
};

for (const [sentence, rows] of Object.entries(ACCEPTED)) {
  test(sentence, () => {
    for (const [text, moment] of rows) {
      const parsed = parseIso8601(text);
      assert.ok(parsed !== undefined, text);
      assert.equal(new Date(parsed).toISOString(), moment, text);
    }
  });
}

for (const [sentence, texts] of Object.entries(REJECTED)) {
  test(sentence, () => {
    for (const text of texts) assert.equal(parseIso8601(text), undefined, text);
  });
}

const YEAR_0 = Date.parse('0000-01-01T00:00:00.000Z');
const YEAR_9999_END = Date.parse('9999-12-31T23:59:59.999Z');

test('every moment that toISOString writes with a four-digit year is read back, in the basic form too', () => {
  fc.assert(
    fc.property(fc.integer({ min: YEAR_0, max: YEAR_9999_END }), (moment) => {
      const text = new Date(moment).toISOString();
      assert.equal(parseIso8601(text), moment);
      assert.equal(parseIso8601(text.replaceAll(/[-:]/g, '')), moment);
    }),
    { numRuns: 20_000 },
  );
});

test('every day of the first 800 years, two whole cycles of the calendar, is the day after the one before', () => {
  const end = Date.parse('0800-01-01T00:00:00.000Z');
  for (let day = YEAR_0; day < end; day += 86_400_000) {
    const text = new Date(day).toISOString().slice(0, 10);
    if (parseIso8601(text) !== day) assert.fail(text);
  }
});

const two = fc.oneof(
  { weight: 5, arbitrary: fc.integer({ min: 0, max: 24 }) },
  { weight: 2, arbitrary: fc.constantFrom(0, 12, 23, 24, 28, 29, 30, 31, 59, 60, 61, 99) },
);
const digits = (value: number): string => String(value).padStart(2, '0');
/** Parts put together in ways that are often right, and then changed in one place now and then. */
const isoLike = fc
  .record({
    year: fc.constantFrom('2026', '2028', '1900', '2000', '0000', '0004', '9999'),
    dash: fc.constantFrom('-', '-', ''),
    month: fc.integer({ min: 0, max: 13 }),
    day: fc.oneof({ weight: 3, arbitrary: fc.integer({ min: 1, max: 28 }) }, { weight: 1, arbitrary: two }),
    times: fc.array(two, { minLength: 0, maxLength: 3 }),
    otherColon: fc.constantFrom(false, false, false, false, true),
    fraction: fc.constantFrom('', '', '.', '.5', ',123456789', '.29', '.000', '.0009', '.33333333333'),
    offset: fc.constantFrom('', 'Z', '+01', '-0530', '+05:30', '+23:59', '-24', '+0160', 'z'),
    change: fc.oneof(
      { weight: 4, arbitrary: fc.constant(undefined) },
      { weight: 1, arbitrary: fc.tuple(fc.nat(), fc.constantFrom(...'0127-:.,TZ+ '.split(''), '')) },
    ),
  })
  .map(({ year, dash, month, day, times, otherColon, fraction, offset, change }) => {
    const colon = (dash === '-') === otherColon ? '' : ':';
    const date = [year, digits(month), digits(day)].join(dash);
    const text = times.length === 0 ? date : `${date}T${times.map(digits).join(colon)}${fraction}${offset}`;
    if (change === undefined) return text;
    const at = change[0] % text.length;
    return text.slice(0, at) + change[1] + text.slice(at + 1);
  });

test('the parser and the oracle agree on texts that look like ISO 8601', () => {
  let accepted = 0;
  const runs = 15_000;
  fc.assert(
    fc.property(isoLike, (text) => {
      const expected = oracleIso8601(text);
      if (expected !== undefined) accepted++;
      assert.equal(parseIso8601(text), expected);
    }),
    { numRuns: runs, seed: 20_261_115 },
  );
  assert.ok(accepted > runs * 0.2 && accepted < runs * 0.8, `${accepted} of ${runs} accepted`);
});

test('a time as it is usually written is read as any other, or left to the general parser', () => {
  const usual = fc.tuple(
    fc.date({ noInvalidDate: true }),
    fc.nat({ max: USUAL_TIME_LENGTH }),
    fc.constantFrom('0', '9', '7', '-', ':', '.', 'T', 'Z', 'é'),
  );
  let read = 0;
  fc.assert(
    fc.property(usual, ([date, place, character]) => {
      const whole = date.toISOString();
      for (const text of [whole, whole.slice(0, place) + character + whole.slice(place + 1)]) {
        const codes = Uint16Array.from(Array.from(`ab${text}`, (one) => one.charCodeAt(0)));
        const time = parseUsualTime(codes, 2);
        if (text.length !== USUAL_TIME_LENGTH || Number.isNaN(time)) continue;
        assert.equal(time, parseIso8601(text), text);
        read++;
      }
    }),
    { numRuns: 5_000 },
  );
  assert.ok(read > 500, String(read));
  assert.equal(parseUsualTime(Buffer.from('2026-11-15T10:20:30.123Z'), 0), Date.parse('2026-11-15T10:20:30.123Z'));
  for (const other of ['2026-02-30T10:20:30.123Z', '2026-11-15T24:00:00.000Z', '2016-12-31T23:59:60.000Z', '2026']) {
    assert.ok(Number.isNaN(parseUsualTime(Buffer.from(other), 0)), other);
  }
});
