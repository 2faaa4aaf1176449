/**
 * The catalogue as both engines keep it (`views/catalogue.ts`): observations are added to the rows of each tenant, which
 * are read, changed and written under the lock of the tenant's first row, so that several processors may do so at once.
 * All take these locks in one order: tenants by number. An erase removes all examples of its tenant, since any of them may
 * be of the person; the next events bring new ones.
 */

import { type Compilable, type RawBuilder, sql } from 'kysely';
import type { TenantId } from '../../model.ts';
import type { Catalogue, CatalogueDetails } from '../../store.ts';
import type { CatalogueKind, Observation } from '../../store-writer.ts';
import {
  countedEntry,
  detailsOf,
  entryOf,
  type EntryRow,
  EVENT_NAMES_MAX,
  examinedEntry,
  OTHER_EVENTS,
} from '../../views/catalogue.ts';
import { changedBy, chunksOf, type RowLocks, rowsOf, type Steps, type Tables } from './steps.ts';
import type { StoreTables } from './store-tables.ts';

/** Clocks of a processor and of the server that erases may differ by less. */
const CLOCK_DIFFERENCE_MS = 60_000;
/** What is removed of the catalogue at a time. */
const ROWS_PER_SWEEP = 500;
const NO_EXAMPLES = '[]';
/** The primary key of both tables. */
const KEY = ['tenant', 'kind', 'name'] as const;

/** Within the transaction, as its last statements. `numbers` are those of all tenants that were observed, by id. */
export function* addToCatalogue(
  tables: Tables,
  locks: RowLocks,
  numbers: ReadonlyMap<TenantId, number>,
  all: readonly Observation[],
  since: number,
): Steps<void> {
  const byTenant = Map.groupBy(all, ({ tenantId }) => numbers.get(tenantId) as number);
  const tenants = [...byTenant].sort(([a], [b]) => a - b);
  if (tenants.length === 0) return;
  const lastErasedAt = new Map<number, number>();
  for (const some of chunksOf(tenants)) {
    const ofTenants = some.map(([tenant]) => tenant);
    const query = tables
      .selectFrom('tenants')
      .select(['no', 'last_erased_at'])
      .where('no', 'in', ofTenants)
      .orderBy('no');
    // Erases of these tenants wait until the end of the transaction.
    for (const row of yield* rowsOf(locks.lockShared(query))) lastErasedAt.set(row.no, row.last_erased_at);
  }
  for (const [tenant, observations] of tenants) {
    const withExamples = (lastErasedAt.get(tenant) ?? 0) < since - CLOCK_DIFFERENCE_MS;
    yield* addToTenant(tables, tenant, observations, withExamples);
  }
}

function* addToTenant(
  tables: Tables,
  tenant: number,
  observations: readonly Observation[],
  withExamples: boolean,
): Steps<void> {
  yield* lockTenant(tables, tenant, observations[0]?.firstSeen ?? 0);
  const stored = yield* readNamed([...observations.map(({ name }) => name), OTHER_EVENTS], (names) =>
    selectEntries(tables, tenant).where('name', 'in', names),
  );
  const kept = yield* withinBound(tables, tenant, observations, stored);
  const examined = kept.filter((seen) => seen.examined > 0);
  const properties = yield* readNamed(
    examined.map(({ name }) => name),
    (names) => selectProperties(tables, tenant).where('name', 'in', names),
  );
  const entries: StoreTables['catalogue_entries'][] = [];
  const documents: StoreTables['catalogue_properties'][] = [];
  for (const seen of kept) {
    const { kind, name, lastSeen } = seen;
    const entry = stored.get(keyOf(seen));
    if (seen.examined === 0) {
      entries.push({ ...countedEntry(entry, seen), tenant, kind, name });
      continue;
    }
    const before = entry && { entry, properties: properties.get(keyOf(seen)) };
    const after = examinedEntry(before, seen, withExamples);
    entries.push({ ...after.entry, tenant, kind, name });
    const examplesAt = after.properties.examples === NO_EXAMPLES ? null : lastSeen;
    documents.push({ ...after.properties, tenant, kind, name, examples_at: examplesAt });
  }
  for (const rows of chunksOf(entries)) {
    const insert = tables.insertInto('catalogue_entries').values(rows);
    yield* changedBy(insert.onConflict((conflict) => conflict.columns(KEY).doUpdateSet(replacedBy(rows))));
  }
  for (const rows of chunksOf(documents)) {
    const insert = tables.insertInto('catalogue_properties').values(rows);
    yield* changedBy(insert.onConflict((conflict) => conflict.columns(KEY).doUpdateSet(replacedBy(rows))));
  }
}

/** All columns but the key. */
function replacedBy([first = {}]: readonly object[]): Record<string, RawBuilder<never>> {
  const columns = Object.keys(first).filter((column) => !KEY.some((key) => key === column));
  return Object.fromEntries(columns.map((column) => [column, sql.ref<never>(`excluded.${column}`)]));
}

/** Writes the row even if nothing changes, which locks it. */
function* lockTenant(tables: Tables, tenant: number, at: number): Steps<void> {
  const row = {
    ...{ tenant, kind: 'event' as const, name: OTHER_EVENTS, count: 0, examined: 0 },
    ...{ first_seen: at, last_seen: at, property_count: 0, key_ids: '[]', changes: '[]' },
  };
  yield* changedBy(
    tables
      .insertInto('catalogue_entries')
      .values(row)
      .onConflict((conflict) =>
        conflict.columns(KEY).doUpdateSet((set) => ({ count: set.ref('catalogue_entries.count') })),
      ),
  );
}

/** By kind and name. */
function* readNamed<Row extends CatalogueKey>(
  names: readonly string[],
  select: (names: readonly string[]) => Compilable<Row>,
): Steps<Map<string, Row>> {
  const found = new Map<string, Row>();
  for (const some of chunksOf(names)) {
    for (const row of yield* rowsOf(select(some))) found.set(keyOf(row), row);
  }
  return found;
}

/** The observations of names that are stored or have room; those of all others are counted in one. */
function* withinBound(
  tables: Tables,
  tenant: number,
  observations: readonly Observation[],
  stored: ReadonlyMap<string, EntryRow>,
): Steps<readonly Observation[]> {
  const isNew = (seen: Observation): boolean => seen.kind === 'event' && !stored.has(keyOf(seen));
  const added = observations.filter(isNew).length;
  if (added === 0) return observations;
  const [row] = yield* rowsOf(
    tables
      .selectFrom('catalogue_entries')
      .select(({ fn }) => fn.countAll<number>().as('names'))
      .where('tenant', '=', tenant)
      .where('kind', '=', 'event')
      .where('name', '<>', OTHER_EVENTS),
  );
  let room = EVENT_NAMES_MAX - (row?.names ?? 0);
  if (room >= added) return observations;
  const kept: Observation[] = [];
  let others: Observation | undefined;
  for (const seen of observations) {
    const isOther = seen.kind === 'event' && seen.name === OTHER_EVENTS;
    if (!isOther && (!isNew(seen) || room-- > 0)) kept.push(seen);
    else others = { ...seen, name: OTHER_EVENTS, count: (others?.count ?? 0) + seen.count, ...NOTHING_EXAMINED };
  }
  return others === undefined ? kept : [...kept, others];
}

const NOTHING_EXAMINED = { examined: 0, properties: [], otherProperties: 0, keyIds: [] };

function selectEntries(tables: Tables, tenant: number) {
  return tables
    .selectFrom('catalogue_entries')
    .select(['kind', 'name', 'count', 'examined', 'first_seen', 'last_seen', 'property_count', 'key_ids', 'changes'])
    .where('tenant', '=', tenant);
}

function selectProperties(tables: Tables, tenant: number) {
  return tables
    .selectFrom('catalogue_properties')
    .select(['kind', 'name', 'properties', 'examples', 'other_properties'])
    .where('tenant', '=', tenant);
}

/** The catalogue of a tenant that never sent anything. */
export const NO_CATALOGUE: Catalogue = { events: [], otherEvents: 0, userProperties: null, profileFields: null };

export function* readCatalogue(tables: Tables, tenant: number): Steps<Catalogue> {
  const entries = yield* rowsOf(selectEntries(tables, tenant).orderBy('kind').orderBy('name'));
  const properties = yield* rowsOf(selectProperties(tables, tenant).where('kind', '<>', 'event'));
  const ofKind = (kind: CatalogueKind): CatalogueDetails | null => {
    const entry = entries.find((row) => row.kind === kind);
    if (entry === undefined) return null;
    const row = properties.find((one) => one.kind === kind);
    return detailsOf(entry.name, entry, row);
  };
  const events = entries.filter((row) => row.kind === 'event');
  return {
    events: events.filter(({ name }) => name !== OTHER_EVENTS).map((row) => entryOf(row.name, row)),
    otherEvents: events.find(({ name }) => name === OTHER_EVENTS)?.count ?? 0,
    userProperties: ofKind('user_properties'),
    profileFields: ofKind('profile_fields'),
  };
}

export function* readCataloguedEvent(
  tables: Tables,
  tenant: number,
  name: string,
): Steps<CatalogueDetails | undefined> {
  if (name === OTHER_EVENTS) return undefined;
  const [entry] = yield* rowsOf(selectEntries(tables, tenant).where('kind', '=', 'event').where('name', '=', name));
  if (entry === undefined) return undefined;
  const [row] = yield* rowsOf(selectProperties(tables, tenant).where('kind', '=', 'event').where('name', '=', name));
  return detailsOf(name, entry, row);
}

/** For an erase, after it has locked the tenant. */
export function* removeExamples(tables: Tables, tenant: number): Steps<void> {
  yield* changedBy(
    tables
      .updateTable('catalogue_properties')
      .set({ examples: NO_EXAMPLES, examples_at: null })
      .where('tenant', '=', tenant)
      .where('examples_at', 'is not', null),
  );
}

/** Entries that were not seen for long; true when there may be more. */
export function* sweepEntries(tables: Tables, cutoff: number): Steps<boolean> {
  const isOld = tables
    .selectFrom('catalogue_entries')
    .select(['tenant', 'kind', 'name'])
    .where('last_seen', '<', cutoff)
    .where((where) => where.or([where('kind', '<>', 'event'), where('name', '<>', OTHER_EVENTS)]))
    .limit(ROWS_PER_SWEEP);
  const old = yield* rowsOf(isOld);
  for (const { tenant, kind, name } of old) {
    const removed = yield* changedBy(
      tables
        .deleteFrom('catalogue_entries')
        .where('tenant', '=', tenant)
        .where('kind', '=', kind)
        .where('name', '=', name)
        // Another processor may have seen it meanwhile.
        .where('last_seen', '<', cutoff),
    );
    if (removed === 0) continue;
    yield* changedBy(
      tables
        .deleteFrom('catalogue_properties')
        .where('tenant', '=', tenant)
        .where('kind', '=', kind)
        .where('name', '=', name),
    );
  }
  return old.length === ROWS_PER_SWEEP;
}

/** Examples of entries whose properties were not examined for some days. */
export function* sweepExamples(tables: Tables, cutoff: number): Steps<void> {
  yield* changedBy(
    tables
      .updateTable('catalogue_properties')
      .set({ examples: NO_EXAMPLES, examples_at: null })
      .where('examples_at', '<', cutoff),
  );
}

type CatalogueKey = Pick<StoreTables['catalogue_entries'], 'kind' | 'name'>;

function keyOf({ kind, name }: CatalogueKey): string {
  return `${kind}\0${name}`;
}
