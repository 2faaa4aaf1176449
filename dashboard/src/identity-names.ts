/**
 * A name for each thing in what `GET /profiles/{id}/identity` returns, and a text for it. The names are made of trace
 * ids and places, never of the identifiers themselves, so that they may stand in the address of the page. They are
 * unique: one user of one request has at most one identifier of each type. Pure.
 */

import { IDENTIFIER_TYPES } from './api-constants.ts';
import type { ChainStep, Identity, LinkedIdentifier, Merge, Refusal } from './api-types.ts';

export function linkKey({ first_trace_id: traceId, userIndex, type }: LinkedIdentifier): string {
  return `link.${traceId}.${userIndex}.${type}`;
}

export function mergeKey({ trace_id: traceId, userIndex, from }: Merge): string {
  return `merge.${traceId}.${userIndex}.${from}`;
}

export function refusalKey({ trace_id: traceId, userIndex, type, reason }: Refusal): string {
  return `refusal.${traceId}.${userIndex}.${type}.${reason}`;
}

/** Whatever has this name, if it is still there: one of the three, or none. */
export function findByKey(
  { identifiers, merges, refusals }: Identity,
  key: string | null,
): { link: LinkedIdentifier | undefined; merge: Merge | undefined; refusal: Refusal | undefined } {
  return {
    link: identifiers.find((one) => linkKey(one) === key),
    merge: merges.find((one) => mergeKey(one) === key),
    refusal: refusals.find((one) => refusalKey(one) === key),
  };
}

/** What a person calls a node by: the identifier of it that says most, the oldest of its type. Some nodes have none. */
export function nodeNames({ identifiers }: Pick<Identity, 'identifiers'>): ReadonlyMap<string, LinkedIdentifier> {
  const names = new Map<string, LinkedIdentifier>();
  for (const link of identifiers) {
    const before = names.get(link.node);
    if (before === undefined || saysMore(link, before)) names.set(link.node, link);
  }
  return names;
}

function saysMore(a: LinkedIdentifier, b: LinkedIdentifier): boolean {
  const ranks = IDENTIFIER_TYPES.indexOf(a.type) - IDENTIFIER_TYPES.indexOf(b.type);
  return ranks < 0 || (ranks === 0 && a.first_seen < b.first_seen);
}

/** The names of what a chain goes through, to be marked in the picture. */
export function keysOfChain({ identifiers, merges }: Identity, chain: readonly ChainStep[]): Set<string> {
  const keys = new Set<string>();
  for (const step of chain) {
    if (step.kind === 'merge') {
      for (const merge of merges) {
        if (merge.trace_id === step.trace_id && merge.userIndex === step.userIndex && merge.from === step.from) {
          keys.add(mergeKey(merge));
        }
      }
    } else {
      for (const link of identifiers) {
        if (link.type === step.type && link.value === step.value) keys.add(linkKey(link));
      }
    }
  }
  return keys;
}

/** What the record was refused for, in words; a person reads these beside the identifier. */
export const REFUSAL_WORDS: Readonly<Record<Refusal['reason'], { readonly short: string; readonly long: string }>> = {
  other_user_id: {
    short: 'belongs to another user_id',
    long: 'It belongs to a profile with another user_id. A profile has one user_id, ever: two people on one device stay two people.',
  },
  limit: {
    short: 'the profile is full',
    long: 'The profile has as many of these as a profile may have. Events and properties were stored anyway.',
  },
  publishable_key: {
    short: 'a publishable key may not',
    long: 'The request used a publishable key, which anyone can copy from a web page. It may not join two known people, nor add an identifier to one.',
  },
  cannot_link: {
    short: 'kept apart by an unmerge',
    long: 'An unmerge separated these two people before.',
  },
};

/** The beginning and the end of an id: enough to distinguish the nodes of one person. */
export function shortId(id: string): string {
  return id.length <= 14 ? id : `${id.slice(0, 8)}…${id.slice(-4)}`;
}

/** Cut in the middle, because identifiers of one kind often begin alike. */
export function cutMiddle(text: string, charactersMax: number): string {
  const characters = Array.from(text);
  if (characters.length <= charactersMax) return text;
  const head = Math.ceil((charactersMax - 1) / 2);
  const tail = charactersMax - 1 - head;
  return `${characters.slice(0, head).join('')}…${characters.slice(characters.length - tail).join('')}`;
}
