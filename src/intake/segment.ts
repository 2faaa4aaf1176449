/**
 * A request in Segment's form (a batch, or one message) as a body in ours, `{"users":[…]}`, with an error for each message
 * that cannot be accepted. `segment-message.ts` maps one message; this file owns what concerns all of them: limits, which
 * messages become one user, and in which order. Pure: the same text, time and options give the same body.
 *
 * Invariant: all users except `rejections` are valid for `POST /ingest/events`; those are the messages as they were sent,
 * without their key. The body gives the same people, properties and events as one user for each message, in order, would.
 */

import { matchKeysOf, type MatchOptions } from '../identity/match-keys.ts';
import { parseExact } from '../json/exact-numbers.ts';
import { END, JsonScanner, KnownKeys } from '../json/scanner.ts';
import { IDENTIFIER_TYPES, LIMITS, type Rejection } from '../model.ts';
import { isObject, type JsonObject } from '../validation/shape.ts';
import { notJsonText, type UserCheck } from '../validation/validate-request.ts';
import { type ConvertedMessage, convertMessage, type MessageFrame, type MessageType } from './segment-message.ts';

export const MESSAGES_PER_REQUEST_MAX = 2_500;

export interface MessageError {
  readonly index: number;
  readonly message: string;
}

export interface ConvertedRequest {
  readonly ok: true;
  readonly body: Uint8Array;
  readonly userCount: number;
  /** Events of the accepted users, which is the number of accepted messages. */
  readonly eventCount: number;
  /** In order of `userIndex`. */
  readonly rejections: readonly Rejection[];
  /** The same ones by message, in order of `index`. */
  readonly errors: readonly MessageError[];
}

export type Conversion =
  | ConvertedRequest
  | { readonly ok: false; readonly code: 'validation_failed' | 'too_large'; readonly message: string };

export interface ConversionOptions {
  /** Null for a batch. */
  readonly type: MessageType | null;
  readonly receivedAt: number;
  readonly matchOptions: MatchOptions;
}

const TOO_LARGE = `the messages must not exceed ${LIMITS.bodyBytesMax} bytes in the form in which they are stored`;

/** `check` returns why a user is rejected by the tracking plan, or null. */
export function convertSegment(
  text: string,
  { type, receivedAt, matchOptions }: ConversionOptions,
  check?: UserCheck,
): Conversion {
  if (text === '') return unusable('body is empty, expected a JSON object');
  let body: unknown;
  try {
    body = parseExact(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return unusable(notJsonText(text));
  }
  if (!isObject(body)) return unusable('body must be a JSON object');
  const messages = type === null ? body.batch : [body];
  if (!Array.isArray(messages)) return unusable('batch is required and must be an array');
  if (messages.length === 0) return unusable('batch must not be empty');
  if (messages.length > MESSAGES_PER_REQUEST_MAX) return unusable(tooManyMessagesText(messages.length));
  const context = type === null && isObject(body.context) ? body.context : {};
  const integrations = type === null && isObject(body.integrations) ? body.integrations : {};
  // Each message gets a copy, so a small body could become gigabytes.
  const sharedBytes = JSON.stringify(context).length + JSON.stringify(integrations).length;
  if (sharedBytes * messages.length > LIMITS.bodyBytesMax) return { ok: false, code: 'too_large', message: TOO_LARGE };
  const frame: MessageFrame = { type, receivedAt, sentAt: body.sentAt, context, integrations };
  const users = new UserList(matchOptions);
  const errors: MessageError[] = [];
  for (const [index, message] of messages.entries()) {
    const converted = convertMessage(message, frame);
    const problem = typeof converted === 'string' ? converted : (check?.(userOf(converted)) ?? null);
    if (problem !== null) {
      errors.push({ index, message: problem });
      users.reject(message, problem);
    } else if (typeof converted !== 'string') {
      users.add(converted);
    }
  }
  const converted = Buffer.from(users.text());
  if (converted.length > LIMITS.bodyBytesMax) return { ok: false, code: 'too_large', message: TOO_LARGE };
  const { count: userCount, rejections } = users;
  return { ok: true, body: converted, userCount, eventCount: messages.length - errors.length, rejections, errors };
}

export function tooManyMessagesText(count: number): string {
  return `batch must hold at most ${MESSAGES_PER_REQUEST_MAX} messages, not ${count}`;
}

interface UserInProgress {
  readonly identifiers: Readonly<Record<string, string>>;
  user_properties?: JsonObject;
  readonly events: JsonObject[];
}

/**
 * Messages of one person become one user where that changes nothing: the message has no identifier that the user lacks, and
 * both have the same strongest match key. A property update may only be added to the last user that has one: later updates
 * win, and another user in between may be the same person.
 */
class UserList {
  readonly #users: unknown[] = [];
  readonly #matchOptions: MatchOptions;
  /** The newest user by its strongest match key. */
  readonly #byStrongestKey = new Map<string, number>();
  #lastWithPropertyUpdate = -1;
  readonly rejections: Rejection[] = [];

  constructor(matchOptions: MatchOptions) {
    this.#matchOptions = matchOptions;
  }

  get count(): number {
    return this.#users.length;
  }

  text(): string {
    return JSON.stringify({ users: this.#users });
  }

  reject(message: unknown, reason: string): void {
    this.rejections.push({ userIndex: this.#users.push(withoutKey(message)) - 1, message: reason });
  }

  add(message: ConvertedMessage): void {
    const strongest = matchKeysOf(message.identifiers, this.#matchOptions).keys[0];
    // Without one it identifies no person, and must not be added to one.
    const key = strongest === undefined ? null : `${strongest.type} ${strongest.value}`;
    const index = key === null ? undefined : this.#byStrongestKey.get(key);
    const user = index === undefined ? undefined : (this.#users[index] as UserInProgress);
    if (user !== undefined && index !== undefined && this.#mayJoin(message, user, index)) {
      user.events.push(message.event);
      if (message.hasPropertyUpdate) this.#users[index] = withPropertyUpdate(user, message);
      if (message.hasPropertyUpdate) this.#lastWithPropertyUpdate = index;
      return;
    }
    const added = this.#users.push(userOf(message)) - 1;
    if (key !== null) this.#byStrongestKey.set(key, added);
    if (message.hasPropertyUpdate) this.#lastWithPropertyUpdate = added;
  }

  #mayJoin({ identifiers, hasPropertyUpdate }: ConvertedMessage, user: UserInProgress, index: number): boolean {
    if (hasPropertyUpdate && index < this.#lastWithPropertyUpdate) return false;
    for (const type of IDENTIFIER_TYPES) {
      if (identifiers[type] !== undefined && identifiers[type] !== user.identifiers[type]) return false;
    }
    return true;
  }
}

/** Rejected messages are kept and shown; keys are kept nowhere but as hashes. */
function withoutKey(message: unknown): unknown {
  if (!isObject(message) || !Object.hasOwn(message, 'writeKey')) return message;
  return Object.fromEntries(Object.entries(message).filter(([name]) => name !== 'writeKey'));
}

export function userOf({ identifiers, userProperties, event }: ConvertedMessage): UserInProgress {
  for (const _name in userProperties) return { identifiers, user_properties: userProperties, events: [event] };
  return { identifiers, events: [event] };
}

/** Later values win, name by name. */
function withPropertyUpdate(user: UserInProgress, { identifiers, userProperties }: ConvertedMessage): UserInProgress {
  return {
    identifiers: { ...user.identifiers, ...identifiers },
    user_properties: { ...user.user_properties, ...userProperties },
    events: user.events,
  };
}

function unusable(message: string): Conversion {
  return { ok: false, code: 'validation_failed', message };
}

const WRITE_KEY = new KnownKeys('writeKey');

/**
 * The key that the body itself has, or null. For bodies of clients that are not known yet, so it builds nothing. Of a name
 * given twice the last one counts, as in every other place.
 */
export function writeKeyOf(body: Uint8Array): string | null {
  const scanner = new JsonScanner(body);
  if (!scanner.openObject()) return null;
  let writeKey: string | null = null;
  for (let key = scanner.nextKey(WRITE_KEY); key !== END; key = scanner.nextKey(WRITE_KEY)) {
    if (key === 0 && scanner.string()) writeKey = scanner.stringText();
    else scanner.skipValue();
  }
  return scanner.finish() ? writeKey : null;
}
