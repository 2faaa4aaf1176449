/**
 * SQLite and PostgreSQL agree: the same records in the same batches, with the same acts in between, give the same
 * responses of the read API to the byte, and the same lines in a complete export. AGREEMENT_SEED=… takes the
 * histories of an earlier run, AGREEMENT_HISTORIES=… more of them.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { logFolderOf } from '../../src/data-folder/files.ts';
import { override } from '../override.ts';
import { folderIn } from '../faults/scope.ts';
import { entriesOf, HISTORY_START, TENANTS } from '../processor/history.ts';
import { appendAll, processAll } from '../processor/processing.ts';
import { assertSame } from '../processor/store-dump.ts';
import { whyNoPostgres } from '../servers/postgres.ts';
import { eventually } from '../server.ts';
import { askEverything, routesNotAsked } from './read-requests.ts';
import { DAY_MS } from '../../src/model.ts';
import { type Act, batchesOf, history, MIDNIGHT, type Step, timeOf } from './generated-history.ts';
import { TwoStores } from './two-stores.ts';
import { UNDOING } from './undoing-history.ts';

const HISTORIES = Number(process.env['AGREEMENT_HISTORIES'] ?? 5);
const GIVEN_SEED = process.env['AGREEMENT_SEED'];
/** All histories of a given seed are played: how far a slow machine gets must not decide whether it fails. */
const HISTORIES_MS_MAX = GIVEN_SEED === undefined ? HISTORIES * 2_500 : Number.POSITIVE_INFINITY;
/** Other tests have transactions open in the same PostgreSQL, and what arrived after those began is not certain until they end. */
const CERTAIN_MS_MAX = 60_000;
const MIXED_ENTRIES = 100;
const MIXED_PEOPLE = 15;
const UNKNOWN = '01234567-0000-7000-8000-00000000beef';

/** In the history that is played first; the others show the rest in most runs. */
const ALWAYS_SEEN = ['merge', 'unmerge', 'cannot_link', 'erase', 'erased when late', 'duplicate event', 'rejection'];

const seed = Number(GIVEN_SEED ?? Math.floor(Math.random() * 2 ** 31));

/** The profile, and the merge in it, that an act is about; what is unknown if there is none. */
async function targetOf(stores: TwoStores, tenantId: string, pick: number): Promise<{ id: string; mergedBy: string }> {
  const [{ store }] = stores.sides;
  const { rows } = await store.profiles(tenantId, { limit: 100, cursor: null });
  const merged = rows.filter(({ mergedIds }) => mergedIds.length > 0);
  const some = merged.length > 0 && pick % 4 !== 0 ? merged : rows;
  const profile = some[pick % Math.max(1, some.length)];
  if (profile === undefined) return { id: UNKNOWN, mergedBy: UNKNOWN };
  const identity = await store.identity(tenantId, profile.id);
  const merge = identity?.merges[pick % Math.max(1, identity.merges.length)];
  // By the id of a node that was merged away, too.
  const ids = [profile.id, ...profile.mergedIds];
  return { id: ids[pick % ids.length] as string, mergedBy: merge?.traceId ?? UNKNOWN };
}

async function perform(stores: TwoStores, act: Act, now: number): Promise<void> {
  if (act.kind === 'sweep') {
    const { eventsDays, tracesMs, rejectionsMs, rejectionBytesMax } = act;
    const retention = { eventsMs: eventsDays * DAY_MS, tracesMs, rejectionsMs, rejectionBytesMax };
    await stores.sweep(retention, MIDNIGHT + act.day * DAY_MS);
    return;
  }
  const tenantId = TENANTS[act.tenant] as string;
  const { id, mergedBy } = await targetOf(stores, tenantId, act.pick);
  stores.now = now + act.atMs;
  if (act.kind === 'erase') await stores.ask(tenantId, `/profiles/${id}`, { method: 'DELETE' });
  else await stores.ask(tenantId, `/profiles/${id}/unmerge`, { method: 'POST', json: { trace_id: mergedBy } });
  stores.now = now;
}

/** A live view shows the same events in the same order. */
async function follow(stores: TwoStores, places: Map<string, [string, string]>): Promise<void> {
  for (const tenantId of TENANTS) {
    const seen: [string[], string[]] = [[], []];
    const certain = eventually(
      'PostgreSQL is certain of what arrived',
      async () => {
        const { events, last } = await stores.arrivals(tenantId, places.get(tenantId) ?? ['', '']);
        places.set(tenantId, last);
        seen[0].push(...(events[0] ?? []));
        seen[1].push(...(events[1] ?? []));
        return seen[1].length >= seen[0].length;
      },
      CERTAIN_MS_MAX,
    );
    // What is missing says more than that it took too long.
    await certain.catch(() => undefined);
    assert.deepEqual(seen[1], seen[0], `what arrived at ${tenantId}`);
  }
}

async function play(stores: TwoStores, steps: readonly Step[]): Promise<void> {
  await stores.renew();
  const batches = batchesOf(steps);
  const places = new Map<string, [string, string]>();
  await follow(stores, places);
  for (const [index, batch] of batches.entries()) {
    stores.now = timeOf(index);
    if (batch.length > 0) await stores.feed(batch);
    await follow(stores, places);
    const act = steps[index]?.act ?? null;
    if (act !== null) await perform(stores, act, stores.now);
  }
  const records = batches.flat();
  const [{ store: sqlite }, { store: postgres }] = stores.sides;
  const traceIds = [...new Set(records.map(({ traceId }) => traceId))];
  await assertSame(sqlite, postgres, traceIds);
  await askEverything(stores, records);
}

suite('SQLite and PostgreSQL agree, to the byte of the read API’s responses,', { skip: whyNoPostgres() }, () => {
  test('on every generated history', async (t) => {
    t.diagnostic(`AGREEMENT_SEED=${seed}`);
    const stores = await TwoStores.open(t);
    const startedAt = performance.now();
    let played = 0;
    await play(stores, UNDOING);
    const property = fc.asyncProperty(history, async (steps) => {
      if (performance.now() - startedAt > HISTORIES_MS_MAX) return;
      await play(stores, steps);
      played += 1;
    });
    await fc.assert(property, { seed, numRuns: HISTORIES });
    assert.deepEqual(routesNotAsked(stores), []);
    t.diagnostic(`seen in answers: ${JSON.stringify(Object.fromEntries(stores.seen))}`);
    for (const name of ALWAYS_SEEN) assert.ok(stores.seen.get(name), `no history has shown: ${name}`);
    t.diagnostic(`${played} histories in ${Math.round(performance.now() - startedAt)} ms`);
  });

  test('on a larger mixed history, through the processor and a real log', async (t) => {
    t.diagnostic(`AGREEMENT_SEED=${seed}`);
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const entries = entriesOf(seed, MIXED_ENTRIES, MIXED_PEOPLE);
    await appendAll(dataFolder, entries);
    const log = openEmbeddedLogReader({ folder: logFolderOf(dataFolder) });
    scope.defer(() => log.close());
    const stores = await TwoStores.open(t);
    stores.now = HISTORY_START + 2 * DAY_MS;
    await stores.renew(log);
    for (const { writer } of stores.sides) {
      await processAll(dataFolder, {
        writer,
        isStoreShared: true,
        log: bounded(log),
        now: () => stores.now,
      });
    }
    const [{ store: sqlite }, { store: postgres }] = stores.sides;
    await assertSame(
      sqlite,
      postgres,
      entries.map(({ traceId }) => traceId),
    );
    await askEverything(stores, entries);
  });
});

/** So that there are many batches. */
function bounded(log: ReturnType<typeof openEmbeddedLogReader>): typeof log {
  return override(log, { read: (partition, position) => log.read(partition, position, 6_000) });
}
