/**
 * `sluice check FILE`: would these requests be accepted? Without a server it validates them as the edge does, and with
 * `--plan` checks them against a tracking plan. With `--url` or `--key` a server is asked, which also says what each user
 * would do to profiles; nothing is stored. Users on consecutive lines of a file are put into one request, as an import would
 * send them, and keep their location in the file. Exit code 0: all is well; 2: something would be rejected or violates the
 * plan, in any mode; 1: it could not be checked. The whole file is in memory: `FILE_BYTES_MAX`.
 */

import { readFileSync, statSync } from 'node:fs';
import { messageOf, OperatorError } from '../errors.ts';
import { describeJsonError } from '../json/error.ts';
import { parseExact } from '../json/exact-numbers.ts';
import { parseJson } from '../json/parse.ts';
import { checkUser, CompiledPlan, type Violation } from '../plans/compiled-plan.ts';
import { describeMistakes, parsePlan } from '../plans/plan.ts';
import { isObject } from '../validation/shape.ts';
import { validateRequest } from '../validation/validate-request.ts';
import { readArguments } from './arguments.ts';
import { finalErrorText, whyCallFailed, rejectedIn } from './import-send.ts';
import { countOf } from './local-time.ts';
import { readServer, type Reply, request, type Server } from './server.ts';
import type { Shell } from './shell.ts';
import { printable } from './table.ts';

const FILE_BYTES_MAX = 64 * 1_024 * 1_024;
const USERS_PER_REQUEST = 500;
const REQUEST_CHARACTERS = 2_000_000;

type Options = Awaited<ReturnType<typeof readOptions>>;

interface CheckedUser {
  readonly location: Location;
  /** Why it would be rejected; null where it would not. */
  readonly message: string | null;
  readonly violations: readonly Violation[];
  /** What the server predicts; null where none was asked, or the key may not know. */
  readonly predicted: Readonly<Record<string, unknown>> | null;
}

interface Result {
  readonly users: CheckedUser[];
  /** What is not a request, or not JSON. */
  readonly bad: BadSample[];
  pendingRequests: number;
}

export async function runCheck(args: readonly string[], shell: Shell): Promise<number> {
  const options = await readOptions(args, shell);
  const { requests, bad } = samplesIn(await readSamples(options.file, shell), options.file?.endsWith('.json') === true);
  if (requests.length === 0 && bad.length === 0) {
    throw new OperatorError('There is nothing in the file; expected requests or users.');
  }
  const result: Result = { users: [], bad: [...bad], pendingRequests: 0 };
  for (const sample of requests) {
    if (options.server === null) checkHere(sample, options.plan, result);
    else await checkThere(sample, options.server, shell.stop, result);
  }
  shell.out(options.json ? jsonOf(result) : describe(result, options));
  return isFine(result) ? 0 : 2;
}

/** `file` is null for stdin, `server` where none is asked. */
async function readOptions(args: readonly string[], shell: Shell) {
  const flags = readArguments('check', args);
  const { mistakes } = flags;
  const [file, ...others] = flags.positionals;
  if (file === undefined) mistakes.push('no file given; expected a file with requests or users, or - for stdin');
  flags.refuse(others, 'files are checked one at a time');
  const asksServer = flags.values.has('url') || flags.values.has('key');
  const planFile = flags.values.get('plan');
  if (asksServer && planFile !== undefined) {
    mistakes.push('--plan is for a check without a server; a server uses the plan that was pushed to it');
  }
  const server = asksServer ? ((await readServer(flags, shell)) ?? null) : null;
  if (mistakes.length > 0) throw flags.error();
  const plan = planFile === undefined ? null : readPlan(planFile);
  return { file: file === '-' || file === undefined ? null : file, plan, server, json: flags.isJson };
}

function readPlan(file: string): CompiledPlan {
  const reading = parsePlan(readText(file));
  if (!reading.ok)
    throw new OperatorError(`${file} is not a valid tracking plan:\n${describeMistakes(reading.mistakes)}`);
  return new CompiledPlan(reading.plan, reading.plan.version ?? 0);
}

async function readSamples(file: string | null, shell: Shell): Promise<string> {
  if (file !== null) return readText(file);
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of shell.stdin) {
    bytes += chunk.byteLength;
    if (bytes > FILE_BYTES_MAX) throw tooLarge('stdin');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function readText(file: string): string {
  try {
    if (statSync(file).size > FILE_BYTES_MAX) throw tooLarge(file);
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw error instanceof OperatorError ? error : new OperatorError(`${file} cannot be read: ${messageOf(error)}.`);
  }
}

function tooLarge(file: string): OperatorError {
  return new OperatorError(`${file} is larger than 64 MB; check a part of it.`);
}

function checkHere({ body, location, userLocation }: Sample, plan: CompiledPlan | null, found: Result): void {
  const validation = validateRequest(body);
  if (!validation.ok) {
    found.bad.push({ location, message: validation.message });
    return;
  }
  const messages = new Map(validation.rejections.map(({ userIndex, message }) => [userIndex, message]));
  const { users } = parseJson(body) as { readonly users: readonly unknown[] };
  for (const [userIndex, user] of users.entries()) {
    const violations = plan === null ? [] : checkUser(plan, user);
    const message = messages.get(userIndex) ?? null;
    found.users.push({ location: userLocation(userIndex), message, violations, predicted: null });
  }
}

/** Does not retry: a check has nothing to lose, and is run again. */
async function checkThere(sample: Sample, server: Server, stop: AbortSignal, found: Result): Promise<void> {
  const { body, location, userLocation } = sample;
  const url = new URL('ingest/events/check', server.url);
  const { status, headers, json } = await request(url, server.key, { method: 'POST', body, stop }).catch(
    (error: unknown): Reply => {
      throw new OperatorError(stop.aborted ? 'Stopped.' : `${url.origin} cannot be reached (${whyCallFailed(error)})`);
    },
  );
  if (status === 413) throw new OperatorError('A request in the file is larger than 10 MB, which no server accepts.');
  if (status === 503) throw new OperatorError(`${url.origin} responds with 503 (unavailable). Run it again later.`);
  const would = status === 200 ? json?.would_respond : undefined;
  if (!isObject(would) || !isObject(would['body'])) throw new OperatorError(finalErrorText(status, headers, url));
  const { message: problem, errors } = would['body'];
  if (typeof problem === 'string') {
    found.bad.push({ location, message: problem });
    return;
  }
  const messages = new Map(rejectedIn(errors).map(({ userIndex, message }) => [userIndex, message]));
  // None for a publishable key.
  const users = objectsIn(json?.users);
  const { users: sent } = parseJson(body) as { readonly users: readonly unknown[] };
  for (const userIndex of sent.keys()) {
    const predicted = users[userIndex] ?? null;
    const message = messages.get(userIndex) ?? null;
    const violations = violationsIn(predicted?.['violations']);
    found.users.push({ location: userLocation(userIndex), message, violations, predicted });
  }
  if (typeof json?.pending_requests === 'number') {
    found.pendingRequests = Math.max(found.pendingRequests, json.pending_requests);
  }
}

function violationsIn(value: unknown): Violation[] {
  if (!Array.isArray(value)) return [];
  return value.filter((one): one is Violation => isObject(one) && typeof one['path'] === 'string');
}

function isRejected({ message, violations }: CheckedUser): boolean {
  return message !== null || violations.some(({ mode }) => mode === 'enforce');
}

function isFine({ users, bad }: Result): boolean {
  return bad.length === 0 && users.every((user) => user.message === null && user.violations.length === 0);
}

function jsonOf(result: Result): string {
  const { users, bad, pendingRequests } = result;
  const rows = users.map(rowOf);
  const unusable = bad.map(({ location, message }) => ({ location: location.text, line: location.line, message }));
  return `${JSON.stringify({ ok: isFine(result), users: rows, unusable, pending_requests: pendingRequests })}\n`;
}

function rowOf(user: CheckedUser): object {
  const { location, message, violations, predicted } = user;
  const status = isRejected(user) ? 'rejected' : 'accepted';
  return { location: location.text, line: location.line, ...predicted, status, message, violations };
}

function describe(result: Result, { server, plan }: Options): string {
  const { users, bad, pendingRequests } = result;
  const lines = bad.map(({ location, message }) => `${location.text || 'the file'}: unusable: ${message}`);
  for (const user of users) lines.push(...linesOf(user));
  const rejected = users.filter(isRejected).length;
  const warned = users.filter((user) => !isRejected(user) && user.violations.length > 0).length;
  const counts = [
    ...(bad.length > 0 ? [`${bad.length} unusable`] : []),
    `${rejected} rejected`,
    ...(server !== null || plan !== null ? [`${warned} accepted in spite of violations`] : []),
  ];
  lines.push(`${countOf(users.length, 'user')} checked: ${isFine(result) ? 'no problems' : counts.join(', ')}.`);
  if (pendingRequests > 0) {
    lines.push(`${countOf(pendingRequests, 'request')} not processed yet: what is in them was not considered.`);
  }
  return `${lines.map(printable).join('\n')}\n`;
}

function linesOf({ location, message, violations, predicted }: CheckedUser): string[] {
  const at = location.text || 'the user';
  // An enforced violation may be the message already, in other words.
  const isSaid = message !== null && violations.some(({ path }) => message.startsWith(`${path}:`));
  return [
    ...(message === null || isSaid ? [] : [`${at}: rejected: ${message}`]),
    ...violations.map(({ path, message: what, event_name: name, mode }) => {
      return `${at}: ${mode === 'enforce' ? 'rejected' : 'violation'}: ${path} ${what}${name === null ? '' : ` (${name})`}`;
    }),
    ...(predicted === null || message !== null ? [] : predictionLines(predicted).map((text) => `${at}: ${text}`)),
  ];
}

/** What the server says would happen, as far as it is more than storing events. */
function predictionLines(user: Readonly<Record<string, unknown>>): string[] {
  const profile = user['is_new'] === true ? 'a new profile' : `profile ${String(user['profile_id'])}`;
  const isStored = user['profile_id'] !== null;
  const lines = isStored ? [`goes to ${profile}`] : ['nothing would be linked to a profile'];
  if (typeof user['duplicate_of'] === 'string') lines.push(`duplicate of trace ${user['duplicate_of']}`);
  if (typeof user['duplicate_events'] === 'number' && user['duplicate_events'] > 0) {
    lines.push(`${countOf(user['duplicate_events'], 'event')} stored before`);
  }
  for (const merge of objectsIn(user['merges'])) {
    const via = isObject(merge['via']) ? `${String(merge['via']['type'])} ${String(merge['via']['value'])}` : '';
    lines.push(`merges ${String(merge['from'])} into ${String(merge['into'])} via ${via}`);
  }
  for (const { name, before, after } of objectsIn(user['property_changes'])) {
    lines.push(`sets ${String(name)}: ${JSON.stringify(before)} → ${JSON.stringify(after)}`);
  }
  const warnings = user['warnings'];
  if (Array.isArray(warnings)) lines.push(...warnings.map((warning: unknown) => `warning: ${String(warning)}`));
  return lines;
}

function objectsIn(value: unknown): Readonly<Record<string, unknown>>[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

interface Location {
  /** For people: `line 3`, `users[2]`. */
  readonly text: string;
  /** Counted from 1; null in a file that is one JSON value. */
  readonly line: number | null;
}

interface Sample {
  readonly body: string;
  readonly location: Location;
  readonly userLocation: (userIndex: number) => Location;
}

interface BadSample {
  readonly location: Location;
  readonly message: string;
}

interface Samples {
  readonly requests: readonly Sample[];
  readonly bad: readonly BadSample[];
}

function samplesIn(text: string, isOneValue: boolean): Samples {
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
    return { requests: [sampleOf(text, value, { ...file, text: '' }, '')], bad: [] };
  }
  const requests = value.map((item: unknown, index) =>
    sampleOf(JSON.stringify(item), item, { ...file, text: `[${index}]` }, `[${index}].`),
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
      requests.push(sampleOf(line, value, location, `${location.text}, `));
    } else {
      if (users.length >= USERS_PER_REQUEST || characters + line.length > REQUEST_CHARACTERS) endRequest();
      users.push({ text: line, location });
      characters += line.length;
    }
  }
  endRequest();
  return { requests, bad };
}

/**
 * A value that is not a request is taken for a user: then the message is about what a user lacks. `before` is in front of
 * the users of a request.
 */
function sampleOf(text: string, value: unknown, location: Location, before: string): Sample {
  if (!isRequest(value)) return { body: `{"users":[${text}]}`, location, userLocation: () => location };
  return {
    body: text,
    location: { ...location, text: location.text || 'the request' },
    userLocation: (userIndex) => ({ ...location, text: `${before}users[${userIndex}]` }),
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
