/**
 * How much of rejected users is stored: limited per user and per record, so that a client that sends garbage cannot
 * fill the disk. The total is limited by the retention sweep. Every rejected user is stored, if need be without what was
 * sent: by that a retry of its request knows that it was rejected.
 */

import { hash } from 'node:crypto';
import type { RejectionToStore } from '../store-writer.ts';
import { parseJson } from '../json/parse.ts';
import { isObject } from '../validation/shape.ts';
import { withoutNul } from './storable-text.ts';

/** In UTF-16 units: enough to see what is wrong. */
const PAYLOAD_LENGTH_MAX = 16_384;
/** Limit of all payloads of one record, in UTF-16 units. Beyond it, only the messages of users are kept. */
const PAYLOADS_LENGTH_MAX = 100 * PAYLOAD_LENGTH_MAX;
/** Event names kept per user, also where its payload is cut; a payload that is kept whole has hardly more. */
const EVENT_NAMES_MAX = 100;
const EVENT_NAME_LENGTH_MAX = 512;
/** No user that is larger can be fixed by hand. */
const PARSED_LENGTH_MAX = 1_048_576;
const HASH_BYTES = 16;

export interface KeptRejection {
  readonly userIndex: number;
  readonly message: string;
  readonly reason: string;
  readonly reasonHash: Uint8Array;
  readonly payload: string;
  readonly isCut: boolean;
  /** Names of its events, as `eventNamesText` writes them. */
  readonly eventNames: string;
}

/** Those of one record. */
export function keptRejections(rejections: readonly RejectionToStore[]): KeptRejection[] {
  const kept: KeptRejection[] = [];
  let length = 0;
  for (const rejection of rejections) {
    const one = keptRejection(rejection);
    length += one.payload.length;
    kept.push(length > PAYLOADS_LENGTH_MAX ? { ...one, payload: '', isCut: true, eventNames: '' } : one);
  }
  return kept;
}

const NOT_KEPT = 'not kept: a person was erased while this request was waiting';

function keptRejection({ userIndex, message: given, payload: sent }: RejectionToStore): KeptRejection {
  const payload = sent ?? NOT_KEPT;
  const isCut = sent === null || payload.length > PAYLOAD_LENGTH_MAX;
  const kept = isCut ? payload.slice(0, PAYLOAD_LENGTH_MAX).toWellFormed() : payload;
  const message = withoutNul(given);
  const reason = withoutIndexes(message);
  const eventNames = sent === null || sent.length > PARSED_LENGTH_MAX ? '' : eventNamesText(sent);
  return { userIndex, message, reason, reasonHash: reasonHash(reason), payload: withoutNul(kept), isCut, eventNames };
}

/**
 * The names of a user's events, each once: JSON strings between line feeds, which no JSON string has in it. So the names
 * that contain `nameInText` are those of a user with such an event.
 */
function eventNamesText(payload: string): string {
  const names = new Set<string>();
  for (const name of givenNames(parseJson(payload))) {
    if (typeof name !== 'string' || name === '' || name.length > EVENT_NAME_LENGTH_MAX) continue;
    names.add(JSON.stringify(withoutNul(name).toWellFormed()));
    if (names.size === EVENT_NAMES_MAX) break;
  }
  return names.size === 0 ? '' : `\n${[...names].join('\n')}\n`;
}

/** The event names of a user, or of a message of Segment's SDKs. */
function givenNames(user: unknown): unknown[] {
  if (!isObject(user)) return [];
  if (!Array.isArray(user.events)) return [user.event];
  return user.events.map((event: unknown) => (isObject(event) ? event.event_name : undefined));
}

export function nameInText(eventName: string): string {
  return `\n${JSON.stringify(withoutNul(eventName).toWellFormed())}\n`;
}

export function eventNamesIn(text: string): string[] {
  return text
    .split('\n')
    .filter((name) => name !== '')
    .map((name) => parseJson(name) as string);
}

/** `<trace_id>.<userIndex>`, by which clients name a rejected user. */
export function rejectionId(traceId: string, userIndex: number): string {
  return `${traceId}.${userIndex}`;
}

/** The hash by which a reason is found, whether a client or the store gave it. */
export function reasonHash(reason: string): Uint8Array {
  return hash('sha256', withoutNul(reason), 'buffer').subarray(0, HASH_BYTES);
}

/** The message without indexes, so that the same mistake has the same reason wherever it is. */
export function withoutIndexes(message: string): string {
  return message.replaceAll(/\[\d+\]/g, '[]');
}
