/**
 * An embedded installation with something of everything in it, made by the real parts: a mixed history in the log, most
 * of it processed; dead letters, an unmerge and an erase; accounts, keys, members, sessions,
 * invitations and failed attempts. For moving it elsewhere (migrate.test.ts).
 */

import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { openSqliteStoreWriter } from '../../src/backends/embedded/store/writer.ts';
import { keyFileOf, storeFileOf } from '../../src/data-folder/files.ts';
import { createKey } from '../../src/keys/manage.ts';
import type { LogEntry } from '../../src/log.ts';
import { DAY_MS, HOUR_MS, type TenantId } from '../../src/model.ts';
import type { Store } from '../../src/store.ts';
import { invitation, join, NOON, session } from '../contract/member-rows.ts';
import { KEEP_ALL } from '../contract/store-feeding.ts';
import { entriesOf, entryOf, HISTORY_START, TENANTS, traceIdOf } from '../processor/history.ts';
import { appendAll, processAll, withStore } from '../processor/processing.ts';

export interface Installation {
  readonly traceIds: readonly string[];
  /** Of requests that are in the log and not yet processed. */
  readonly pendingTraceIds: readonly string[];
  /** A secret key of the first tenant. */
  readonly key: string;
}

/** So few that there are several groups of events, and blocks that were made again. */
const GROUP_EVENTS = 300;
/** So that some profile deltas are not merged yet. */
const SIZES = { groupEvents: GROUP_EVENTS, profileSizes: { fanOut: 2, blockRows: 3, mergedBytesMin: 300 } };

export async function fillInstallation(dataFolder: string, records = 600): Promise<Installation> {
  const entries = entriesOf(11, records);
  const poison = { ...oneUser(1, 'poison'), body: Buffer.from('{"users":[') };
  await appendAll(dataFolder, [oneUser(0, 'expired', -400), ...entries.slice(0, records / 2), poison]);
  await appendAll(dataFolder, entries.slice(records / 2));
  await processAll(dataFolder, SIZES);
  await withStore(storeFileOf(dataFolder), act);
  await expireOldest(storeFileOf(dataFolder));
  await noteLost(storeFileOf(dataFolder));
  noteJobAndViolation(storeFileOf(dataFolder));
  // Meets what was erased and what was kept apart, and what comes again.
  const again = entriesOf(12, records / 6, Math.ceil(records / 6));
  const repeated: LogEntry[] = [];
  for (const entry of entries.slice(0, 20)) {
    repeated.push({ ...entry, traceId: traceIdOf(HISTORY_START, 9_000 + repeated.length) });
  }
  await appendAll(dataFolder, [...again, ...repeated]);
  await processAll(dataFolder, SIZES);
  const pending = [2, 3, 4, 5].map((n) => oneUser(n, 'pending'));
  await appendAll(dataFolder, pending);
  await appendAll(dataFolder, entriesOf(13, 30));
  const key = await fillKeys(keyFileOf(dataFolder));
  const traceIds = [...entries, ...again, ...repeated, poison].map(({ traceId }) => traceId);
  return { traceIds, pendingTraceIds: pending.map(({ traceId }) => traceId), key };
}

/** Nothing but the events that came in very long ago. */
async function expireOldest(file: string): Promise<void> {
  const writer = openSqliteStoreWriter({ file, ...SIZES });
  const retention = { ...KEEP_ALL, eventsMs: 50 * DAY_MS };
  while (await writer.sweep(retention, HISTORY_START - 300 * DAY_MS));
  await writer.close();
}

/** Of a partition that is read no more, so that nothing else depends on it. */
async function noteLost(file: string): Promise<void> {
  const writer = openSqliteStoreWriter({ file, ...SIZES });
  const transaction = await writer.begin();
  for (const from of [1, 12]) await transaction.noteLost({ partition: 7, from, to: from + 5, records: 5, at: NOON });
  await transaction.commit(false);
  await writer.close();
}

/** A job that is done, and a violation of a plan that was pushed before: nothing else depends on either. */
function noteJobAndViolation(file: string): void {
  const database = new DatabaseSync(file);
  const jobId = traceIdOf(HISTORY_START, 7_000);
  database
    .prepare(
      `INSERT INTO jobs (id, tenant, kind, status, created_at, stepped_at, finished_at, called_by, filter, after_time, after_no, matched)
       VALUES (?, 1, 'resubmit', 'done', ${NOON}, ${NOON}, ${NOON}, 'null', '{}', 0, 0, 3)`,
    )
    .run(jobId);
  database
    .prepare(
      `INSERT INTO plan_violations VALUES (1, 2, 'order', 'total', 'must be a number', 0, 5, ${NOON}, ${NOON}, ?)`,
    )
    .run(jobId);
  database.close();
}

function oneUser(n: number, name: string, days = 40): LogEntry {
  return entryOf([{ identifiers: { user_id: `${name}-${n}` }, events: [{ event_name: name }] }], {
    traceId: traceIdOf(HISTORY_START, 8_000 + n),
    tenantId: TENANTS[0],
    receivedAt: HISTORY_START + days * DAY_MS + n,
    keyKind: 'secret',
    idempotencyKey: null,
  });
}

/** Undoes a merge of each tenant, and erases another person. */
async function act(store: Store): Promise<void> {
  let [unmerged, erased] = [0, 0];
  for (const [n, tenantId] of TENANTS.entries()) {
    const [joined, another] = await mergedProfiles(store, tenantId);
    const at = HISTORY_START + 50 * 24 * HOUR_MS + n;
    const merges = joined === undefined ? [] : ((await store.identity(tenantId, joined))?.merges ?? []);
    for (const { traceId } of merges.slice(0, 1)) {
      const result = await store.unmerge(tenantId, joined ?? '', traceId, { traceId: traceIdOf(at, 1), at });
      unmerged += result?.undone ?? 0;
    }
    if (another !== undefined && (await store.erase(tenantId, another, { traceId: traceIdOf(at, 2), at }))) erased += 1;
  }
  assert.ok(unmerged > 0 && erased > 0, 'the history has no one to unmerge or to erase');
}

async function mergedProfiles(store: Store, tenantId: TenantId): Promise<string[]> {
  const { rows } = await store.profiles(tenantId, { limit: 500, cursor: null });
  return rows.filter(({ mergedIds }) => mergedIds.length > 0).map(({ id }) => id);
}

async function fillKeys(file: string): Promise<string> {
  const keyStore = openSqliteKeyStore(file);
  const accounts = [
    await keyStore.ensureAccount({ id: 'acct_a', name: 'Größe & Co', createdAt: NOON }),
    await keyStore.ensureAccount({ id: 'acct_b', name: 'b', createdAt: NOON }),
  ] as const;
  const about = { environment: 'production', origins: [], expiresAt: null, now: NOON } as const;
  const made: string[] = [];
  for (const { id: accountId } of accounts) {
    made.push((await createKey(keyStore, { ...about, accountId, name: 'one', kind: 'secret' })).key);
    const origins = ['https://shop.example'];
    await createKey(keyStore, { ...about, accountId, name: 'two', kind: 'publishable', origins });
  }
  const ids = (await keyStore.list()).map(({ id }) => id);
  assert.equal(ids.length, 4);
  await keyStore.revoke(ids[0] ?? '', NOON + 1);
  const volume = { users: 3, events: 5, usersRejected: 1, requestsLimited: 2 };
  await keyStore.recordUsage([{ keyId: ids[1] ?? '', usedAt: NOON + 2, leakOrigin: 'https://evil.example', volume }]);
  const plan = { text: '{"unplanned_events":"warn","events":{}}', enforces: false, warns: true };
  const tenant = { accountId: accounts[0].id, environment: 'production' } as const;
  await keyStore.plans.push(tenant, { ...plan, createdAt: NOON, createdBy: ids[1] ?? '', basedOn: null });

  const { members } = keyStore;
  const [own, other] = accounts;
  await join(members, own, { email: 'Ada@Example.com', passwordHash: 'argon2$ada' });
  const grace = await join(members, other, { email: 'grace@example.com', passwordHash: 'argon2$grace' });
  await members.startSession({ id: grace.id, passwordHash: 'argon2$grace' }, session(NOON + 3));
  await members.createInvitation(invitation(own, { email: 'new@example.com' }), 10);
  await members.createInvitation(
    invitation(other, { kind: 'reset', email: 'grace@example.com', memberId: grace.id }),
    10,
  );
  await members.takeAttempt([new Uint8Array(32).fill(7)], NOON, () => ({ waitMs: 0, failures: [3] }));
  await keyStore.close();
  return made[0] ?? '';
}
