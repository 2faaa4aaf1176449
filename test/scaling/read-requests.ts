/**
 * Every question of the read API about everything that a history names, and about things that there are not. What both
 * stores return is compared by `TwoStores`; here is only what to ask.
 */

import type { LogRecord } from '../../src/log.ts';
import { DAY_MS, IDENTIFIER_TYPES, LIMITS, type TenantId } from '../../src/model.ts';
import { isLongerThan, isStorable } from '../../src/validation/characters.ts';
import { SILENT, type TwoStores } from './two-stores.ts';
import { HISTORY_START } from '../processor/history.ts';

const UNKNOWN = '01234567-0000-7000-8000-00000000dead';
const ASKED_AT_ONCE = 4;
/** Ends of chains that are asked for, of one profile. */
const CHAINS_MAX = 6;
const OTHERS_TRACES = 3;

/** GET routes that tell nothing of what a store holds, or, like /live, nothing that ends. */
const OTHER_ROUTES =
  /^\/(|livez|readyz|metrics|version|health|live|ingest\/sluice\.js|session|keys|members.*|openapi\.json|docs.*|dashboard.*|assets.*|app.*|invitations?.*)$/;

interface Subjects {
  readonly identifiers: readonly (readonly [type: string, value: string])[];
  readonly eventNames: readonly string[];
}

type Said = { identifiers?: Record<string, unknown>; events?: { event_name?: unknown }[] } | null;

/** What requests name. */
function subjectsIn(records: readonly Pick<LogRecord, 'body'>[]): Subjects {
  const identifiers = new Map<string, readonly [string, string]>();
  const eventNames = new Set<string>();
  for (const { body } of records) {
    for (const user of (JSON.parse(Buffer.from(body).toString('utf8')) as { users: Said[] }).users) {
      for (const type of IDENTIFIER_TYPES) {
        const value = user?.identifiers?.[type];
        if (typeof value !== 'string' || value === '' || isLongerThan(value, LIMITS.identifierCharactersMax)) continue;
        if (isStorable(value)) identifiers.set(`${type} ${value}`, [type, value]);
      }
      for (const event of Array.isArray(user?.events) ? user.events : []) {
        if (typeof event?.event_name === 'string' && event.event_name !== '') eventNames.add(event.event_name);
      }
    }
  }
  return { identifiers: [...identifiers.values()], eventNames: [...eventNames] };
}

export async function askEverything(
  stores: TwoStores,
  records: readonly Pick<LogRecord, 'tenantId' | 'traceId' | 'receivedAt' | 'body'>[],
): Promise<void> {
  const days = [...new Set(records.map(({ receivedAt }) => Math.floor(receivedAt / DAY_MS)))];
  const byTenant = Map.groupBy(records, ({ tenantId }) => tenantId);
  for (const tenantId of [...byTenant.keys(), SILENT]) {
    const subjects = subjectsIn(byTenant.get(tenantId) ?? []);
    const own = new Set(byTenant.get(tenantId)?.map(({ traceId }) => traceId));
    const others = records.filter(({ traceId }) => !own.has(traceId)).slice(0, OTHERS_TRACES);
    await askAll(stores, tenantId, [
      ...subjects.identifiers.map(([type, value]) => `/profiles?provenance=1&${type}=${encodeURIComponent(value)}`),
      ...[...new Set(subjects.identifiers.map(([, value]) => value))].map(searchPath),
      // Also some of other tenants, which must not be visible.
      ...[...own, ...others.map(({ traceId }) => traceId), UNKNOWN, 'no-uuid'].map((traceId) => `/traces/${traceId}`),
      ...countPaths(),
      ...[...days, 0].map((day) => `/receipts?from=${time(day * DAY_MS)}&to=${time((day + 1) * DAY_MS)}`),
      '/profiles?user_id=nobody',
      '/profiles/count',
      searchPath(UNKNOWN),
      '/ledger?from=1970-01-01',
      '/ledger',
      '/catalogue',
      ...['/plan', '/plan/versions', '/plan/violations'],
      ...subjects.eventNames.map((name) => `/catalogue/${encodeURIComponent(name)}`),
      '/rejections/reasons',
      `/rejections/reasons?from=${time(HISTORY_START)}`,
      '/events?cursor=nonsense',
      '/audit?cursor=nonsense',
      '/rejections?cursor=nonsense',
      `/rejections?event_name=${encodeURIComponent(subjects.eventNames[0] ?? 'none')}`,
      '/rejections?resubmitted=false&key_id=none',
      '/jobs?cursor=nonsense',
      `/jobs/${UNKNOWN}`,
      '/dead-letters?cause=none',
    ]);
    await askProfiles(stores, tenantId);
    await askLists(stores, tenantId, subjects);
  }
}

/** Every route of the read API was asked for. */
export function routesNotAsked(stores: TwoStores): string[] {
  const asked = [...stores.asked];
  return stores.routes.filter((route) => {
    const pattern = new RegExp(`^${route.replaceAll(/:\w+/g, '[^/]+')}$`);
    return !OTHER_ROUTES.test(route) && !asked.some((path) => pattern.test(path));
  });
}

async function askAll(stores: TwoStores, tenantId: TenantId, paths: readonly string[]): Promise<void> {
  for (let start = 0; start < paths.length; start += ASKED_AT_ONCE) {
    await Promise.all(paths.slice(start, start + ASKED_AT_ONCE).map((path) => stores.ask(tenantId, path)));
  }
}

async function askProfiles(stores: TwoStores, tenantId: TenantId): Promise<void> {
  const [{ store }] = stores.sides;
  const ids = new Set([UNKNOWN]);
  for (let cursor: string | null = null; ; ) {
    const page: Awaited<ReturnType<typeof store.profiles>> = await store.profiles(tenantId, { limit: 100, cursor });
    for (const { id, mergedIds } of page.rows) for (const one of [id, ...mergedIds]) ids.add(one);
    cursor = page.nextCursor;
    if (cursor === null) break;
  }
  await stores.ask(tenantId, searchPath([...ids].at(-1) ?? UNKNOWN));
  for (const id of ids) {
    await askAll(stores, tenantId, [`/profiles/${id}`, `/profiles/${id}?provenance=1`]);
    const [identity] = await stores.ask(tenantId, `/profiles/${id}/identity`);
    await askAll(stores, tenantId, chainPaths(id, identity));
    await askAll(stores, tenantId, [
      `/profiles/${id}/events?event_name=order`,
      `/profiles/${id}/events?from=${time(HISTORY_START - DAY_MS)}&to=${time(HISTORY_START + DAY_MS)}`,
    ]);
    await stores.askPages(tenantId, `/profiles/${id}/events?limit=4`);
  }
}

function chainPaths(id: string, identity: string): string[] {
  const { identifiers = [] } = JSON.parse(identity) as { identifiers?: { type: string; value: string }[] };
  const ends = identifiers.map(({ type, value }) => encodeURIComponent(`${type}:${value}`));
  const [first = 'user_id%3Anobody'] = ends;
  return [...ends.slice(-CHAINS_MAX), 'email%3Anobody'].map(
    (end) => `/profiles/${id}/identity?from=${first}&to=${end}`,
  );
}

async function askLists(stores: TwoStores, tenantId: TenantId, { eventNames }: Subjects): Promise<void> {
  const [reasons] = await stores.ask(tenantId, '/rejections/reasons');
  const { reasons: reported } = JSON.parse(reasons) as { reasons: { reason: string }[] };
  const range = `from=${time(HISTORY_START)}&to=${time(HISTORY_START + DAY_MS)}`;
  const paged = [
    '/events?limit=9',
    '/events?limit=9&include=person',
    '/traces?limit=7',
    '/profiles/search?limit=3&include=last_event',
    `/events?limit=5&${range}`,
    ...eventNames.map((name) => `/events?limit=20&event_name=${encodeURIComponent(name)}`),
    '/rejections?limit=3',
    `/rejections?limit=3&${range}`,
    ...reported.map(({ reason }) => `/rejections?limit=50&reason=${encodeURIComponent(reason.slice(0, 1_000))}`),
    '/audit?limit=1',
    '/jobs?limit=1',
    '/dead-letters?limit=1',
  ];
  for (const path of paged) {
    const pages = await stores.askPages(tenantId, path);
    const entries = pages.flatMap((page) => (JSON.parse(page) as { entries?: { trace_id: string }[] }).entries ?? []);
    await askAll(
      stores,
      tenantId,
      entries.map((entry) => `/audit?trace_id=${entry.trace_id}`),
    );
  }
}

function countPaths(): string[] {
  const windows = [
    ['minute', HISTORY_START - 2 * DAY_MS, HISTORY_START + 3 * DAY_MS],
    ['hour', HISTORY_START - 40 * DAY_MS, HISTORY_START + 60 * DAY_MS],
    ['day', HISTORY_START - 6_000 * DAY_MS, HISTORY_START + 400 * DAY_MS],
    ['day', Date.UTC(2099, 0), Date.UTC(2100, 5)],
    ['hour', Date.UTC(1969, 11, 30), Date.UTC(1970, 1)],
    ['day', Date.parse('0000-12-01T00:00:00Z'), Date.parse('0001-03-01T00:00:00Z')],
  ] as const;
  return windows.flatMap(([interval, from, to]) =>
    ['', '&group_by=event_name'].map(
      (grouped) => `/events/counts?interval=${interval}&from=${time(from)}&to=${time(to)}${grouped}`,
    ),
  );
}

function searchPath(value: string): string {
  return `/profiles/search?value=${encodeURIComponent(value)}`;
}

function time(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}
