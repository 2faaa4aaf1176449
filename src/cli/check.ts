/**
 * `sluice check FILE`: would these requests be accepted? Without a server it validates them as the edge does, and with
 * `--plan` checks them against a tracking plan. With `--url` or `--key` a server is asked, which also says what each user
 * would do to profiles; nothing is stored. Users on consecutive lines of a file are put into one request, as an import would
 * send them, and keep their location in the file. The whole file is in memory: `FILE_BYTES_MAX`.
 */

import { readFileSync, statSync } from 'node:fs';
import type { Static } from 'typebox';
import type { CheckResponse, PredictedUser } from '../api/ingest-operation.ts';
import { messageOf, OperatorError } from '../errors.ts';
import { describeJsonError } from '../json/error.ts';
import { parseExact } from '../json/exact-numbers.ts';
import { parseJson } from '../json/parse.ts';
import { LIMITS } from '../model.ts';
import { CompiledPlan, type Violation } from '../plans/compiled-plan.ts';
import { describeMistakes, parsePlan } from '../plans/plan.ts';
import { isObject } from '../validation/shape.ts';
import { validateRequest } from '../validation/validate-request.ts';
import { readArguments } from './arguments.ts';
import { problemOfLine } from './import-lines.ts';
import { rejectedIn } from './import-send.ts';
import { countOf } from './local-time.ts';
import { callApi, notSluiceText, readServer, type Server } from './server.ts';
import type { Shell } from './shell.ts';
import { printable } from './table.ts';

const FILE_BYTES_MAX = 64 * 1_024 * 1_024;
const USERS_PER_REQUEST = 500;
const REQUEST_CHARACTERS = 2_000_000;

type Predicted = Static<typeof PredictedUser>;
type Options = Awaited<ReturnType<typeof readOptions>>;

interface CheckedUser {
  readonly location: Location;
  /** Why it would be rejected; null where it would not. */
  readonly message: string | null;
  readonly violations: readonly Violation[];
  /** What the server predicts; null where none was asked, or the key may not know. */
  readonly predicted: Predicted | null;
}

interface Result {
  readonly users: CheckedUser[];
  /** What is not a request, or not JSON. */
  readonly bad: BadSample[];
  pendingRequests: number;
}

export async function runCheck(args: readonly string[], shell: Shell): Promise<number> {
  const options = await readOptions(args, shell);
  const result: Result = { users: [], bad: [], pendingRequests: 0 };
  const samples = await readSamples(options.file, shell);
  const items = itemsIn(samples, options.file?.endsWith('.json') === true, result.bad);
  if (items.length === 0 && result.bad.length === 0) {
    throw new OperatorError('There is nothing in the file; expected requests or users.');
  }
  for (const sample of requestsOf(items)) {
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
  const server = asksServer ? await readServer(flags, shell) : null;
  if (mistakes.length > 0) throw flags.error();
  const plan = planFile === undefined ? null : readPlan(planFile);
  return { file: file === '-' || file === undefined ? null : file, plan, server, json: flags.isJson };
}

function readPlan(file: string): CompiledPlan {
  const text = readText(file);
  const reading = parsePlan(text);
  if (!reading.ok)
    throw new OperatorError(`${file} is not a valid tracking plan:\n${describeMistakes(reading.mistakes)}`);
  return new CompiledPlan(reading.plan, { id: file, version: reading.plan.version ?? 0, text });
}

async function readSamples(file: string | null, shell: Shell): Promise<string> {
  const samples = file === null ? await readStdin(shell) : readText(file);
  return samples.replace(/^\uFEFF/, '');
}

async function readStdin({ stdin }: Shell): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of stdin) {
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

function checkHere({ body, location, users }: Sample, plan: CompiledPlan | null, found: Result): void {
  if (Buffer.byteLength(body) > LIMITS.bodyBytesMax) {
    found.bad.push({ location, message: 'payload too large: a request may have 10 MB' });
    return;
  }
  const validation = validateRequest(body);
  if (!validation.ok) {
    found.bad.push({ location, message: validation.message });
    return;
  }
  const messages = new Map(validation.rejections.map(({ userIndex, message }) => [userIndex, message]));
  const sent = parseJson(body) as { readonly users: readonly unknown[] };
  for (const [userIndex, userLocation] of users.entries()) {
    const violations = plan?.violationsOf(sent.users[userIndex]) ?? [];
    found.users.push({ location: userLocation, message: messages.get(userIndex) ?? null, violations, predicted: null });
  }
}

async function checkThere(sample: Sample, server: Server, stop: AbortSignal, found: Result): Promise<void> {
  const { body, location, users } = sample;
  const reply = await callApi(server, 'ingest/events/check', { method: 'POST', body, stop });
  const would = reply.json.would_respond;
  if (!isObject(would) || !isObject(would.body)) throw new OperatorError(notSluiceText(server, reply));
  const response = reply.json as unknown as Static<typeof CheckResponse>;
  const { message: problem, errors } = response.would_respond.body as { message?: string; errors: unknown };
  if (problem !== undefined) {
    found.bad.push({ location, message: problem });
    return;
  }
  const messages = new Map(rejectedIn(errors).map(({ userIndex, message }) => [userIndex, message]));
  for (const [userIndex, userLocation] of users.entries()) {
    // None for a publishable key.
    const predicted = response.users?.[userIndex] ?? null;
    const message = messages.get(userIndex) ?? null;
    found.users.push({ location: userLocation, message, violations: predicted?.violations ?? [], predicted });
  }
  found.pendingRequests = Math.max(found.pendingRequests, response.pending_requests ?? 0);
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
function predictionLines(user: Predicted): string[] {
  const profile = user.is_new ? 'a new profile' : `profile ${user.profile_id}`;
  return [
    user.profile_id === null ? 'nothing would be linked to a profile' : `goes to ${profile}`,
    ...(user.duplicate_of === null ? [] : [`duplicate of trace ${user.duplicate_of}`]),
    ...(user.duplicate_events === 0 ? [] : [`${countOf(user.duplicate_events, 'event')} stored before`]),
    ...user.merges.map(({ from, into, via }) => `merges ${from} into ${into} via ${via.type} ${via.value}`),
    ...user.property_changes.map(({ name, before, after }) => {
      return `sets ${name}: ${JSON.stringify(before)} → ${JSON.stringify(after)}`;
    }),
    ...user.warnings.map((warning) => `warning: ${warning}`),
  ];
}

interface Location {
  /** For people: `line 3`, `users[2]`. */
  readonly text: string;
  /** Counted from 1; null in a file that is one JSON value. */
  readonly line: number | null;
}

/** A user, or a request, as it is in the file. */
interface Item {
  readonly text: string;
  readonly value: unknown;
  readonly location: Location;
}

/** A request, and where its users are. */
interface Sample {
  readonly body: string;
  readonly location: Location;
  readonly users: readonly Location[];
}

interface BadSample {
  readonly location: Location;
  readonly message: string;
}

/** What is not JSON is among the bad ones. */
function itemsIn(text: string, isOneValue: boolean, bad: BadSample[]): Item[] {
  const read = (part: string, location: Location): Item[] => {
    try {
      return [{ text: part, value: parseExact(part), location }];
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      const problem = location.line === null ? describeJsonError(part) : problemOfLine(part);
      bad.push({
        location: { ...location, text: location.text || 'the file' },
        message: `is not valid JSON: ${problem}`,
      });
      return [];
    }
  };
  if (!isOneValue) {
    return text.split('\n').flatMap((line, index) => {
      return line.trim() === '' ? [] : read(line, { text: `line ${index + 1}`, line: index + 1 });
    });
  }
  return read(text, { text: '', line: null }).flatMap((item) => {
    if (!Array.isArray(item.value)) return [item];
    return item.value.map((value: unknown, index) => {
      return { text: JSON.stringify(value), value, location: { text: `[${index}]`, line: null } };
    });
  });
}

/**
 * Users on lines that follow each other are put into one request. A value that is not a request is taken for a user: then the
 * message is about what a user lacks.
 */
function requestsOf(items: readonly Item[]): Sample[] {
  const requests: Sample[] = [];
  let users: Item[] = [];
  let characters = 0;
  const endRequest = (): void => {
    const [first] = users;
    if (first === undefined) return;
    const body = `{"users":[${users.map((user) => user.text).join(',')}]}`;
    requests.push({ body, location: first.location, users: users.map(({ location }) => location) });
    [users, characters] = [[], 0];
  };
  for (const item of items) {
    const { text, value, location } = item;
    if (isObject(value) && Object.hasOwn(value, 'users') && !Object.hasOwn(value, 'identifiers')) {
      endRequest();
      const before = location.text === '' ? '' : `${location.text}${location.line === null ? '.' : ', '}`;
      const sent: readonly unknown[] = Array.isArray(value.users) ? value.users : [];
      requests.push({
        body: text,
        location: { ...location, text: location.text || 'the request' },
        users: sent.map((_, at) => ({ line: location.line, text: `${before}users[${at}]` })),
      });
    } else {
      if (users.length >= USERS_PER_REQUEST || characters + text.length > REQUEST_CHARACTERS) endRequest();
      users.push(item);
      characters += text.length;
      // The elements of an array are requests of their own, which do not see each other.
      if (location.line === null) endRequest();
    }
  }
  endRequest();
  return requests;
}
