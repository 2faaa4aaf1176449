/**
 * `sluice tail`: events as they are processed, one line each, until Ctrl-C or until the reader is gone. Polls the store
 * five times a second, so it works with a running server and shows what is stored if there is none. `--since` shows
 * events by their own timestamps; what follows comes in order of arrival.
 */

import { jsonText } from '../api/responses.ts';
import { eventJson } from '../api/stored-json.ts';
import { parseDurationMs } from '../config/values.ts';
import { maskedEvent } from '../plans/personal.ts';
import type { Plan } from '../plans/plan.ts';
import type { EventReader, LedgerReader, StoredEvent } from '../store.ts';
import { readArguments, readFlag } from './arguments.ts';
import { shortTime } from './local-time.ts';
import { pause, type Shell } from './shell.ts';
import { bold, dim, printable, shorten } from './table.ts';
import { findTenant, type DataSource, planOfTenant, readDataSource, type Tenant, withStore } from './tenant.ts';

const POLL_MS = 200;
const PAGE_EVENTS = 500;
/** Past events shown with --since; they are held in memory to reverse their order. */
const PAST_EVENTS_MAX = 10_000;
const WIDE_COLUMNS = 120;
const NAME_COLUMNS = 24;
const NARROW_NAME_COLUMNS = 16;
const REVENUE_COLUMNS = 10;
const NARROW_REVENUE_COLUMNS = 8;
const PROPERTIES_COLUMNS_MIN = 8;

export async function runTail(args: readonly string[], shell: Shell): Promise<number> {
  const flags = readArguments('tail', args);
  const { mistakes } = flags;
  const place = readDataSource(flags, shell);
  mistakes.push(...flags.positionals.map((word) => `unexpected argument "${word}"; one event name: --event "${word}"`));
  const sinceMs = readFlag(flags, 'since', parseDurationMs, 'a time such as 10m or 2h') ?? 0;
  if (mistakes.length > 0) throw flags.error();

  const eventName = flags.values.get('event') ?? null;
  let plan: Plan | null = null;
  const show = (stored: StoredEvent): void => {
    if (eventName !== null && stored.eventName !== eventName) return;
    const event = maskedEvent(plan, stored);
    shell.out(flags.isJson ? `${jsonText(eventJson(event))}\n` : `${lineOf(event, shell)}\n`);
  };
  await withStore(shell, place.config, async (store) => {
    const tenant = await waitForTenant(shell, store, place);
    if (tenant !== undefined && !flags.switches.has('personal')) plan = await planOfTenant(shell, place.config, tenant);
    if (tenant !== undefined) await follow(shell, store, tenant, sinceMs, eventName, show);
  });
  return 0;
}

async function waitForTenant(shell: Shell, store: LedgerReader, place: DataSource): Promise<Tenant | undefined> {
  let hasSaidSo = false;
  for (;;) {
    const tenant = await findTenant(shell, store, place);
    if (tenant !== undefined || shell.stop.aborted) return tenant;
    if (!hasSaidSo) shell.err('No events yet; waiting for the first one. Ctrl-C stops.\n');
    hasSaidSo = true;
    await pause(POLL_MS, shell.stop);
  }
}

async function follow(
  shell: Shell,
  store: EventReader,
  tenant: Tenant,
  sinceMs: number,
  eventName: string | null,
  show: (event: StoredEvent) => void,
): Promise<void> {
  let { last } = await store.arrivals(tenant.id, null, PAGE_EVENTS);
  // Read after the cursor was taken: an event may be in both, and none is in neither.
  const past = sinceMs === 0 ? [] : await eventsSince(store, tenant, eventName, shell.now() - sinceMs);
  const shown = new Set(past.map(({ id }) => id));
  for (const event of past.toReversed()) show(event);
  if (past.length >= PAST_EVENTS_MAX) shell.err(`There are more; these are the last ${PAST_EVENTS_MAX}.\n`);

  while (!shell.stop.aborted) {
    const page = await store.arrivals(tenant.id, last, PAGE_EVENTS);
    ({ last } = page);
    for (const event of page.events) {
      if (!shown.delete(event.id)) show(event);
    }
    await shell.drained();
    if (page.events.length < PAGE_EVENTS) await pause(POLL_MS, shell.stop);
  }
}

async function eventsSince(
  store: EventReader,
  tenant: Tenant,
  eventName: string | null,
  from: number,
): Promise<StoredEvent[]> {
  const found: StoredEvent[] = [];
  let cursor: string | null = null;
  do {
    const query = { profileId: null, eventName, from, to: null, limit: PAGE_EVENTS, cursor };
    const page = await store.events(tenant.id, query);
    found.push(...(page?.rows ?? []));
    cursor = page?.nextCursor ?? null;
  } while (cursor !== null && found.length < PAST_EVENTS_MAX);
  return found.slice(0, PAST_EVENTS_MAX);
}

/** The profile is never cut: it is there to be copied. In narrow terminals the properties go first. */
function lineOf(event: StoredEvent, { outTerminal, now }: Shell): string {
  const { columns } = outTerminal;
  const isNarrow = columns < WIDE_COLUMNS;
  const nameColumns = isNarrow ? NARROW_NAME_COLUMNS : NAME_COLUMNS;
  const time = shortTime(event.timestamp, now());
  const name = shorten(printable(event.eventName), nameColumns).padEnd(nameColumns);
  const profile = (event.profileId ?? '–').padEnd(UUID_COLUMNS);
  const revenue = (event.revenue ?? '').padStart(isNarrow ? NARROW_REVENUE_COLUMNS : REVENUE_COLUMNS);
  const room = columns - [time, name, profile, revenue, ''].join('  ').length;
  const isShown = event.properties !== '{}' && room >= PROPERTIES_COLUMNS_MIN;
  const properties = isShown ? shorten(printable(event.properties), room) : '';
  return `${dim(time)}  ${bold(name)}  ${profile}  ${revenue}  ${properties}`.trimEnd();
}

const UUID_COLUMNS = 36;
