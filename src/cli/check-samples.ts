/**
 * The sample requests in a file, for `sluice check`: one JSON value (a request, a user, or an array of either), or one of
 * them per line. Users on consecutive lines are put into one request, as an import would send them. Each user keeps its
 * location in the file, by which people find it. Numbers keep their digits. The whole file is in memory: `FILE_BYTES_MAX`.
 */

import { describeJsonError } from '../json/error.ts';
import { parseExact } from '../json/exact-numbers.ts';
import { isObject } from '../validation/shape.ts';

export const FILE_BYTES_MAX = 64 * 1_024 * 1_024;
const USERS_PER_REQUEST = 500;
const REQUEST_CHARACTERS = 2_000_000;

export interface Location {
  /** For people: `line 3`, `users[2]`. */
  readonly text: string;
  /** Counted from 1; null in a file that is one JSON value. */
  readonly line: number | null;
}

export interface Sample {
  /** The body of a request. */
  readonly body: string;
  /** Where the request is. */
  readonly location: Location;
  /** Where each of its users is. */
  readonly userLocation: (userIndex: number) => Location;
}

export interface BadSample {
  readonly location: Location;
  readonly message: string;
}

export interface Samples {
  readonly requests: readonly Sample[];
  readonly bad: readonly BadSample[];
}

export function samplesIn(text: string, isOneValue: boolean): Samples {
  const withoutMark = text.startsWith('\uFEFF') ? text.slice(1) : text;
  return isOneValue ? samplesInValue(withoutMark) : samplesInLines(withoutMark);
}

function samplesInValue(text: string): Samples {
  const file: Location = { text: 'the file', line: null };
  const value = parsed(text);
  if (value === undefined) {
    return { requests: [], bad: [{ location: file, message: `is not valid JSON: ${describeJsonError(text) ?? ''}` }] };
  }
  if (!Array.isArray(value)) {
    return { requests: [sampleOf(text, value, { ...file, text: '' })], bad: [] };
  }
  const requests = value.map((item: unknown, index) =>
    sampleOf(JSON.stringify(item), item, { text: `[${index}]`, line: null }),
  );
  return { requests, bad: [] };
}

function samplesInLines(text: string): Samples {
  const requests: Sample[] = [];
  const bad: BadSample[] = [];
  let users: { readonly text: string; readonly location: Location }[] = [];
  let characters = 0;
  const endRequest = (): void => {
    const [first] = users;
    if (first === undefined) return;
    const locations = users.map(({ location }) => location);
    const body = `{"users":[${users.map((user) => user.text).join(',')}]}`;
    const userLocation = (userIndex: number): Location => locations[userIndex] ?? first.location;
    requests.push({ body, location: first.location, userLocation });
    [users, characters] = [[], 0];
  };
  for (const [index, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    const location = { text: `line ${index + 1}`, line: index + 1 };
    const value = parsed(line);
    if (value === undefined) {
      const where = describeJsonError(line)?.replace('at line 1, column', 'at column') ?? '';
      bad.push({ location, message: `is not valid JSON: ${where}` });
    } else if (isRequest(value)) {
      endRequest();
      requests.push(sampleOf(line, value, location));
    } else {
      if (users.length >= USERS_PER_REQUEST || characters + line.length > REQUEST_CHARACTERS) endRequest();
      users.push({ text: line, location });
      characters += line.length;
    }
  }
  endRequest();
  return { requests, bad };
}

/** A value that is no request is taken for a user: then the message is about what a user lacks. */
function sampleOf(text: string, value: unknown, location: Location): Sample {
  const { text: place, line } = location;
  if (!isRequest(value)) return { body: `{"users":[${text}]}`, location, userLocation: () => location };
  const separator = line === null ? '' : ', ';
  const dot = line === null && place !== '' ? '.' : separator;
  const named = (name: string): Location => ({ text: place === '' ? name : `${place}${dot}${name}`, line });
  return {
    body: text,
    location: place === '' ? { text: 'the request', line } : location,
    userLocation: (userIndex) => named(`users[${userIndex}]`),
  };
}

function isRequest(value: unknown): boolean {
  return isObject(value) && Object.hasOwn(value, 'users') && !Object.hasOwn(value, 'identifiers');
}

/** Undefined for what is not JSON. */
function parsed(text: string): unknown {
  try {
    return parseExact(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return undefined;
  }
}
