/**
 * What the Live view holds: the events that are shown, those held back while a person reads, and how many came while it
 * was paused. A reducer without React or network, so that it can be tested as it is. An event is in here once, by its
 * id; the newest is first; never more than `ROWS_MAX` are kept, except that the row that is open always stays, and that
 * older ones that were asked for come on top of it until new ones push them out, all of them together.
 */

import type { StoredEvent } from '../api-types.ts';

export const ROWS_MAX = 200;
/** How many the view asks for when it opens, and when it continues after a pause or a lost connection. */
export const LISTED_MAX = 50;

export interface LiveEvents {
  readonly shown: readonly StoredEvent[];
  /** Came while the reader had a row open or was further down; shown when asked for. */
  readonly held: readonly StoredEvent[];
  /** Held back, counting those that are more than are kept. */
  readonly heldCount: number;
  /** Came while paused; counted and not kept. */
  readonly missedCount: number;
  /** Left out by the server in a burst, or more than are asked for after a pause, since this feed began. */
  readonly skippedCount: number;
  /** Of those shown, how many were asked for because they are older; null when none were. */
  readonly olderCount: number | null;
  /** How often older ones were pushed out: continuing from the last of them would leave a gap. */
  readonly cuts: number;
}

type LiveChange =
  | { readonly kind: 'listed'; readonly events: readonly StoredEvent[]; readonly how: Arrival; readonly openId: string }
  | {
      readonly kind: 'arrived';
      readonly events: readonly StoredEvent[];
      readonly how: Arrival;
      readonly openId: string;
    }
  | { readonly kind: 'older'; readonly events: readonly StoredEvent[] }
  | { readonly kind: 'skipped'; readonly events: number }
  | { readonly kind: 'show held'; readonly openId: string }
  | { readonly kind: 'go on' };

/** What becomes of events as they arrive. */
type Arrival = 'show' | 'hold' | 'count';

export const NO_EVENTS: LiveEvents = {
  shown: [],
  held: [],
  heldCount: 0,
  missedCount: 0,
  skippedCount: 0,
  olderCount: null,
  cuts: 0,
};

export function changeLive(state: LiveEvents, change: LiveChange): LiveEvents {
  if (change.kind === 'arrived') return arrive(state, change.events, change.how, change.openId);
  if (change.kind === 'older') return addOlder(state, change.events);
  if (change.kind === 'skipped') return { ...state, skippedCount: state.skippedCount + change.events };
  if (change.kind === 'show held') return arrive(state, [], 'show', change.openId);
  if (change.kind === 'go on') {
    const leftOut = Math.max(state.missedCount - LISTED_MAX, 0);
    return { ...state, missedCount: 0, skippedCount: state.skippedCount + leftOut };
  }
  // A list that comes while paused brings nothing that was not counted; the one after continuing will.
  if (state.shown.length > 0 && change.how === 'count') return state;
  return arrive(state, change.events, state.shown.length === 0 ? 'show' : change.how, change.openId);
}

function arrive(state: LiveEvents, events: readonly StoredEvent[], how: Arrival, openId: string): LiveEvents {
  const fresh = without(events, state.shown);
  if (how === 'count') return { ...state, missedCount: state.missedCount + fresh.length };
  if (how === 'show') {
    const all = merge([...fresh, ...state.held], state.shown);
    const isCut = all.length > ROWS_MAX + (state.olderCount ?? 0);
    const older = isCut && state.olderCount !== null ? { olderCount: null, cuts: state.cuts + 1 } : {};
    return { ...state, shown: isCut ? newest(all, openId) : all, held: [], heldCount: 0, ...older };
  }
  const more = without(fresh, state.held);
  return { ...state, held: newest(merge(more, state.held), ''), heldCount: state.heldCount + more.length };
}

function without(events: readonly StoredEvent[], others: readonly StoredEvent[]): StoredEvent[] {
  const ids = new Set(others.map(({ id }) => id));
  return events.filter(({ id }) => !ids.has(id));
}

/** By time of receipt, and within a request by place in it; newest and last first. */
function merge(added: readonly StoredEvent[], old: readonly StoredEvent[]): StoredEvent[] {
  const byId = new Map<string, StoredEvent>();
  for (const event of [...added, ...old]) if (!byId.has(event.id)) byId.set(event.id, event);
  return [...byId.values()].toSorted((left, right) => compareArrival(right, left));
}

function addOlder(state: LiveEvents, events: readonly StoredEvent[]): LiveEvents {
  const fresh = without(events, state.shown);
  return { ...state, shown: merge(fresh, state.shown), olderCount: (state.olderCount ?? 0) + fresh.length };
}

function newest(all: readonly StoredEvent[], openId: string): StoredEvent[] {
  return all.filter(({ id }, index) => index < ROWS_MAX || id === openId);
}

function compareArrival(left: StoredEvent, right: StoredEvent): number {
  return (
    compareText(left.received_at, right.received_at) ||
    compareText(left.trace_id, right.trace_id) ||
    left.userIndex - right.userIndex ||
    eventIndexOf(left) - eventIndexOf(right)
  );
}

/** An id is the trace_id, the user's index and the event's index, with dots between them. */
function eventIndexOf({ id }: StoredEvent): number {
  return Number(id.slice(id.lastIndexOf('.') + 1)) || 0;
}

/** Times of the API are all of one form, so that their texts are in the order of the times. */
function compareText(left: string, right: string): number {
  if (left === right) return 0;
  return left < right ? -1 : 1;
}

const SUMMARY_PROPERTIES_MAX = 4;
const SUMMARY_VALUE_CHARACTERS_MAX = 40;

/** The first few properties on one line, as pairs of texts: what a client sent is text and nothing else. */
export function summaryOf(properties: Readonly<Record<string, unknown>>): { name: string; value: string }[] {
  return Object.entries(properties)
    .slice(0, SUMMARY_PROPERTIES_MAX)
    .map(([name, value]) => ({ name: cut(name), value: cut(valueText(value)) }));
}

export function valueText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function cut(text: string): string {
  if (text.length <= SUMMARY_VALUE_CHARACTERS_MAX) return text;
  // Half a surrogate pair would show as a broken character.
  return `${text.slice(0, SUMMARY_VALUE_CHARACTERS_MAX - 1).replace(/[\uD800-\uDBFF]$/, '')}…`;
}
