/**
 * The values of `format` that a tracking plan checks. Each takes time linear in the text. They are deliberately plain: an
 * e-mail address is anything with one @ between two parts and no space; a date-time needs a time and an offset.
 */

import { parseIso8601 } from '../validation/iso8601.ts';

const DATE = /^\d{4}-\d\d-\d\d$/;
const DATE_TIME = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)$/;
const EMAIL = /^[^\s@]+@[^\s@]+$/;
const UUID = /^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$/;

export const FORMATS: Readonly<Record<string, (text: string) => boolean>> = {
  date: (text) => DATE.test(text) && parseIso8601(text) !== undefined,
  'date-time': (text) => DATE_TIME.test(text) && parseIso8601(text.toUpperCase()) !== undefined,
  email: (text) => EMAIL.test(text),
  uri: (text) => URL.canParse(text),
  uuid: (text) => UUID.test(text),
};

export const FORMAT_NAMES: readonly string[] = Object.keys(FORMATS);
