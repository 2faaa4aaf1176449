/**
 * One message in Segment's form as one user in ours: identifiers, user_properties and one event. Owns the mapping of every
 * member of a message, and the errors of a message, in the sender's words. Pure.
 *
 * Invariant: every value of an accepted message is kept: as an identifier, a profile field, a user property or an event
 * property. Left out are only the key, `_metadata`, the times of sending and receiving, and traits that are null where no
 * null can be kept. A message that cannot be mapped is an error, never a guess.
 */

import { isRawNumber } from '../json/exact-numbers.ts';
import type { IdentifierType } from '../model.ts';
import { isBlank } from '../validation/characters.ts';
import { parseIso8601 } from '../validation/iso8601.ts';
import { isEmptyObject, isObject, isPresent, type JsonObject } from '../validation/shape.ts';
import { firstViolation } from '../validation/validate-user.ts';

export const MESSAGE_TYPES = ['track', 'identify', 'page', 'screen', 'group', 'alias'] as const;
export type MessageType = (typeof MESSAGE_TYPES)[number];

/** What a message becomes. `event` is complete; `identifiers` holds profile fields too. */
export interface ConvertedMessage {
  readonly identifiers: Readonly<Record<string, string>>;
  readonly userProperties: JsonObject;
  readonly event: JsonObject;
  readonly hasPropertyUpdate: boolean;
}

export interface MessageFrame {
  readonly receivedAt: number;
  /** The route of a single message says its type; a message of a batch says it itself. */
  readonly type: MessageType | null;
  readonly sentAt: unknown;
  readonly context: JsonObject;
  readonly integrations: JsonObject;
}

type Entry = readonly [name: string, value: unknown];

/** Events of these names are made of messages that Segment does not call events. */
const EVENT_NAMES: Readonly<Record<Exclude<MessageType, 'track'>, string>> = {
  identify: '$identify',
  page: 'page_viewed',
  screen: 'screen_viewed',
  group: '$group',
  alias: '$alias',
};

/** Put before the name of a property that has another meaning here. */
const PREFIX = 'segment_';

const FIELDS_BY_TRAIT: ReadonlyMap<string, string> = new Map([
  ['firstName', 'first_name'],
  ['first_name', 'first_name'],
  ['lastName', 'last_name'],
  ['last_name', 'last_name'],
  ['name', 'name'],
]);
const FIELDS_BY_ADDRESS_PART: ReadonlyMap<string, string> = new Map([
  ['street', 'street'],
  ['city', 'city'],
  ['state', 'state'],
  ['postalCode', 'postal_code'],
  ['postal_code', 'postal_code'],
  ['country', 'country'],
]);
const IDENTIFIERS_BY_TRAIT: ReadonlyMap<string, IdentifierType> = new Map([
  ['email', 'email'],
  ['phone', 'phone_number'],
]);
const IDENTIFIERS_BY_EXTERNAL_TYPE: ReadonlyMap<string, IdentifierType> = new Map([
  ['user_id', 'user_id'],
  ['email', 'email'],
  ['phone', 'phone_number'],
  ['phone_number', 'phone_number'],
  ['anonymous_id', 'anon_id'],
  ['anon_id', 'anon_id'],
]);

/** Mapped by name below, or of no use to anyone. All other members are kept under `segment`. */
const KNOWN_MEMBERS: ReadonlySet<string> = new Set([
  ...['type', 'event', 'name', 'category', 'userId', 'anonymousId', 'previousId', 'groupId', 'traits', 'properties'],
  ...['context', 'integrations', 'timestamp', 'originalTimestamp', 'sentAt', 'receivedAt', 'messageId', 'writeKey'],
  '_metadata',
]);

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const NOTHING: JsonObject = {};
/** Years with four digits, as ISO 8601 has them without an agreement. */
const TIME_MIN = Date.parse('0000-01-01T00:00:00Z');
const TIME_MAX = Date.parse('9999-12-31T23:59:59Z');

/** The user that a message becomes, or what is wrong with it, in words. */
export function convertMessage(message: unknown, frame: MessageFrame): ConvertedMessage | string {
  if (!isObject(message)) return 'message must be an object';
  const type = frame.type ?? message.type;
  if (!isMessageType(type)) return `type must be one of ${MESSAGE_TYPES.join(', ')}`;
  const problem = problemOf(message, type);
  if (problem !== null) return problem;
  const time = eventTime(message, frame);
  if (time === null) return 'timestamp must be an ISO 8601 timestamp';
  const context = merged(frame.context, message.context);
  const user = new UserBuilder(message, type, context);
  const event = eventOf(message, type, time, context, frame);
  const converted: ConvertedMessage = { ...user.finish(), event };
  const violation = firstViolation({
    identifiers: converted.identifiers,
    user_properties: converted.userProperties,
    events: [withDoubles(event)],
  });
  return violation === null ? converted : inSegmentWords(violation);
}

function isMessageType(type: unknown): type is MessageType {
  return MESSAGE_TYPES.includes(type as MessageType);
}

/** What has to be of a certain kind to be mapped at all. */
function problemOf(message: JsonObject, type: MessageType): string | null {
  for (const name of ['userId', 'anonymousId', 'previousId', 'messageId'] as const) {
    if (isPresent(message[name]) && stringOf(message[name]) === null) return `${name} must be a string`;
  }
  for (const name of ['context', 'properties', 'traits', 'integrations'] as const) {
    if (isPresent(message[name]) && !isObject(message[name])) return `${name} must be an object`;
  }
  if (type === 'track' && (typeof message.event !== 'string' || isBlank(message.event))) {
    return 'event is required and must be a non-empty string';
  }
  if (type === 'alias' && identifierOf(message.previousId) === null) return 'previousId is required';
  if (type === 'group' && identifierOf(message.groupId) === null) return 'groupId is required and must be a string';
  return null;
}

/** Segment takes numbers for ids, and reads them as text. */
function stringOf(value: unknown): string | null {
  if (typeof value === 'string') return value;
  if (typeof value === 'number') return String(value);
  return isRawNumber(value) ? value.rawJSON : null;
}

function identifierOf(value: unknown): string | null {
  const text = stringOf(value);
  return text === null || isBlank(text) ? null : text;
}

function merged(first: JsonObject, second: unknown): JsonObject {
  if (!isObject(second)) return first;
  return first === NOTHING || isEmptyObject(first) ? second : { ...first, ...second };
}

class UserBuilder {
  readonly #identifiers = new Map<string, string>();
  readonly #properties: Entry[] = [];
  #hasFields = false;

  constructor(message: JsonObject, type: MessageType, context: JsonObject) {
    this.#identify('user_id', message.userId);
    this.#identify('anon_id', type === 'alias' ? message.previousId : message.anonymousId);
    const contextTraits = isObject(context.traits) ? context.traits : NOTHING;
    if (type === 'identify') {
      const traits = isObject(message.traits) ? message.traits : NOTHING;
      this.#addTraits(traits);
      this.#addTraits(without(contextTraits, (name) => Object.hasOwn(traits, name)));
    }
    for (const [trait, identifier] of IDENTIFIERS_BY_TRAIT) this.#identify(identifier, contextTraits[trait]);
    this.#addExternalIds(context.externalIds);
  }

  finish(): Pick<ConvertedMessage, 'identifiers' | 'userProperties' | 'hasPropertyUpdate'> {
    return {
      identifiers: Object.fromEntries(this.#identifiers),
      userProperties: this.#properties.length === 0 ? NOTHING : Object.fromEntries(this.#properties),
      hasPropertyUpdate: this.#hasFields || this.#properties.length > 0,
    };
  }

  /** Whether the value is the identifier of this type now; the first one of a type is used. */
  #identify(type: IdentifierType, value: unknown): boolean {
    const text = identifierOf(value);
    return text !== null && this.#identifiers.getOrInsert(type, text) === text;
  }

  #addTraits(traits: JsonObject): void {
    for (const [name, value] of Object.entries(traits)) {
      const identifier = IDENTIFIERS_BY_TRAIT.get(name);
      const field = FIELDS_BY_TRAIT.get(name);
      if (identifier !== undefined && this.#identify(identifier, value)) continue;
      if (field !== undefined && this.#addField(field, value)) continue;
      if (name === 'address' && isObject(value)) this.#addAddress(value);
      else if (identifier === undefined || isPresent(value)) {
        this.#properties.push([name === 'external_ids' ? PREFIX + name : name, value]);
      }
    }
  }

  /** Fields are text; null cannot be kept as one, and says nothing. The first value of a field is used. */
  #addField(name: string, value: unknown): boolean {
    if (value === null) return true;
    if (typeof value !== 'string') return false;
    this.#hasFields = true;
    return this.#identifiers.getOrInsert(name, value) === value;
  }

  #addAddress(address: JsonObject): void {
    const rest: Entry[] = [];
    for (const [name, value] of Object.entries(address)) {
      const field = FIELDS_BY_ADDRESS_PART.get(name);
      if (field === undefined || !this.#addField(field, value)) rest.push([name, value]);
    }
    if (rest.length > 0) this.#properties.push(['address', Object.fromEntries(rest)]);
  }

  #addExternalIds(externalIds: unknown): void {
    if (!Array.isArray(externalIds)) return;
    const others = new Map<string, unknown>();
    for (const one of externalIds as unknown[]) {
      if (!isObject(one) || typeof one.type !== 'string' || !isPresent(one.id)) continue;
      if (isPresent(one.collection) && one.collection !== 'users') continue;
      const identifier = IDENTIFIERS_BY_EXTERNAL_TYPE.get(one.type);
      if (identifier !== undefined && this.#identify(identifier, one.id)) continue;
      const before = others.get(one.type);
      others.set(one.type, before === undefined ? one.id : [before, one.id].flat());
    }
    if (others.size > 0) this.#properties.push(['external_ids', Object.fromEntries(others)]);
  }
}

interface EventTime {
  /** As it is stored; undefined for the time of receipt. */
  readonly timestamp: string | undefined;
  /** As the client's clock said, where it is stored otherwise. */
  readonly original: string | undefined;
}

/**
 * The clock of a client may be wrong, but it was as wrong when the message was sent as when the event happened: the time
 * between the two is right. Null if there is a time that cannot be read.
 */
function eventTime({ timestamp, originalTimestamp, sentAt }: JsonObject, frame: MessageFrame): EventTime | null {
  const original = timeOf(originalTimestamp) === undefined ? timestamp : originalTimestamp;
  if (!isPresent(original)) return { timestamp: undefined, original: undefined };
  const happenedAt = timeOf(original);
  if (happenedAt === undefined) return null;
  const delay = (timeOf(isPresent(sentAt) ? sentAt : frame.sentAt) ?? Number.NaN) - happenedAt;
  const corrected = frame.receivedAt - delay;
  const isUsable = delay >= 0 && corrected >= TIME_MIN && corrected <= TIME_MAX;
  if (!isUsable) return { timestamp: original as string, original: undefined };
  return { timestamp: new Date(corrected).toISOString(), original: original as string };
}

function timeOf(value: unknown): number | undefined {
  return typeof value === 'string' ? parseIso8601(value) : undefined;
}

function eventOf(
  message: JsonObject,
  type: MessageType,
  time: EventTime,
  context: JsonObject,
  frame: MessageFrame,
): JsonObject {
  const properties = isObject(message.properties) ? message.properties : NOTHING;
  const reserved = new Map<string, unknown>();
  reserved.set('event_name', type === 'track' ? message.event : EVENT_NAMES[type]);
  if (time.timestamp !== undefined) reserved.set('timestamp', time.timestamp);
  const messageId = identifierOf(message.messageId);
  if (messageId !== null) reserved.set('$event_id', messageId);
  if (type === 'page' || type === 'screen') {
    for (const name of ['name', 'category'] as const) if (isPresent(message[name])) reserved.set(name, message[name]);
  }
  if (type === 'group') {
    reserved.set('group_id', message.groupId);
    if (isObject(message.traits)) reserved.set('traits', message.traits);
  }
  if (type === 'alias') {
    reserved.set('previous_id', message.previousId);
    if (isPresent(message.anonymousId)) reserved.set('anonymous_id', message.anonymousId);
  }
  if (time.original !== undefined) reserved.set('original_timestamp', time.original);
  const kept = type === 'identify' ? withoutUsedTraits(context, message.traits) : context;
  if (!isEmptyObject(kept)) reserved.set('context', kept);
  const rest = restOf(message, type, frame);
  if (rest !== null) reserved.set('segment', rest);
  return Object.fromEntries([...reserved, ...propertyEntries(properties, reserved)]);
}

/** context.traits of an identify call are stored with the person, except those that `traits` has with another value. */
function withoutUsedTraits(context: JsonObject, traits: unknown): JsonObject {
  if (!isObject(context.traits)) return context;
  const overridden = isObject(traits) ? traits : NOTHING;
  const unused = without(
    context.traits,
    (name, value) => !Object.hasOwn(overridden, name) || JSON.stringify(overridden[name]) === JSON.stringify(value),
  );
  return isEmptyObject(unused) ? without(context, (name) => name === 'traits') : { ...context, traits: unused };
}

function without(object: JsonObject, isLeftOut: (name: string, value: unknown) => boolean): JsonObject {
  return Object.fromEntries(Object.entries(object).filter(([name, value]) => !isLeftOut(name, value)));
}

/** Members that have no place of their own; null if there are none. */
function restOf(message: JsonObject, type: MessageType, frame: MessageFrame): JsonObject | null {
  const rest: Entry[] = [];
  const integrations = merged(frame.integrations, message.integrations);
  if (!isEmptyObject(integrations)) rest.push(['integrations', integrations]);
  for (const [name, value] of Object.entries(message)) {
    if (!KNOWN_MEMBERS.has(name) || TYPES_BY_MEMBER.get(name)?.includes(type) === false) rest.push([name, value]);
  }
  return rest.length === 0 ? null : Object.fromEntries(rest);
}

/** Members that mean something in messages of these types alone. */
const TYPES_BY_MEMBER: ReadonlyMap<string, readonly MessageType[]> = new Map([
  ['event', ['track']],
  ['name', ['page', 'screen']],
  ['category', ['page', 'screen']],
  ['previousId', ['alias']],
  ['groupId', ['group']],
  ['traits', ['identify', 'group']],
]);

/** Names that mean something else here get a prefix; amounts that can be read as numbers are numbers. */
function propertyEntries(properties: JsonObject, reserved: ReadonlyMap<string, unknown>): Entry[] {
  const entries: Entry[] = [];
  const isTaken = (name: string): boolean =>
    reserved.has(name) || OWN_NAMES.has(name) || Object.hasOwn(properties, name);
  for (const [name, value] of Object.entries(properties)) {
    const amountName = AMOUNT_NAMES.get(name);
    const amount = amountName === undefined ? null : amountOf(value);
    if (amountName !== undefined && amount !== null) {
      entries.push([amountName, amount]);
      continue;
    }
    // Browsers repeat the name of a page among its properties: that is not a collision.
    const isCollision = reserved.has(name) && reserved.get(name) !== value;
    // An amount that is not a number is kept as any other property, under a name that may hold anything.
    if (name !== 'value' && (OWN_NAMES.has(name) || isCollision)) {
      let free = PREFIX + name;
      while (isTaken(free)) free = PREFIX + free;
      entries.push([free, value]);
    } else if (!reserved.has(name)) {
      entries.push([name, value]);
    }
  }
  return entries;
}

const AMOUNT_NAMES: ReadonlyMap<string, string> = new Map([
  ['revenue', 'revenue'],
  ['value', 'event_value'],
]);
/** What these mean is fixed for every event. */
const OWN_NAMES: ReadonlySet<string> = new Set(['event_name', 'timestamp', 'revenue', 'event_value', '$event_id']);

/** Numbers, and texts that are one: SDKs in languages without a decimal type send those. */
function amountOf(value: unknown): unknown {
  if (typeof value === 'number') return Number.isFinite(value) ? value : null;
  if (isRawNumber(value)) return Number.isFinite(Number(value.rawJSON)) ? value : null;
  if (typeof value !== 'string' || !NUMBER.test(value)) return null;
  const number = Number(value);
  return Number.isFinite(number) ? number : null;
}

/** For the validator, which knows doubles alone. */
function withDoubles(event: JsonObject): JsonObject {
  const { revenue, event_value: value } = event;
  if (!isRawNumber(revenue) && !isRawNumber(value)) return event;
  return { ...event, revenue: doubleOf(revenue), event_value: doubleOf(value) };
}

function doubleOf(value: unknown): unknown {
  return isRawNumber(value) ? Number(value.rawJSON) : value;
}

const OWN_WORDS: readonly (readonly [own: string | RegExp, theirs: string])[] = [
  [
    'at least one identifier is required (user_id, email, phone_number, or anon_id)',
    'userId or anonymousId is required',
  ],
  ['identifiers.user_id', 'userId'],
  ['identifiers.anon_id', 'anonymousId'],
  ['identifiers.email', 'traits.email'],
  ['identifiers.phone_number', 'traits.phone'],
  [/^identifiers(?=[.[ ])/, 'traits'],
  [/^user_properties(?=[.[ ])/, 'traits'],
  ['events[0].event_name is required and must be a non-empty string', 'event must be a non-empty string'],
  ['events[0].$event_id', 'messageId'],
  ['events[0].context', 'context'],
  [/^events\[0\](?=[.[ ])/, 'properties'],
];

/** The same complaint, by the names that the sender knows. */
function inSegmentWords(violation: string): string {
  for (const [own, theirs] of OWN_WORDS) {
    if (typeof own === 'string' ? violation.startsWith(own) : own.test(violation)) {
      return violation.replace(own, () => theirs);
    }
  }
  return violation;
}
