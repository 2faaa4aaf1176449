/**
 * How an act of the API writes to the store beside the processor, and the smaller of the two acts, unmerge (rule 16).
 *
 * The processor holds the write lock most of the time and lets go of it for a few milliseconds between its
 * transactions, so an act asks again every millisecond. It waits without blocking: reads go on meanwhile. What an act
 * commits is on the disk before it answers. The processor notices that somebody else wrote, and forgets what it knew.
 */

import type { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { apartAfter, regroup } from '../../identity/explain.ts';
import { compareOrigins } from '../../identity/origin.ts';
import type { NodeNumber } from '../../model.ts';
import type { Act, UnmergeResult } from '../../store.ts';
import { StoreUnavailableError } from '../../store-writer.ts';
import { isBusy } from './database.ts';
import { idBytes, type StoreConnection } from './store-connection.ts';
import { type MergeRow, mergesOf, nodesById, type ProfileNode } from './store-profiles.ts';
import { uuidBytes, uuidText } from './store-schema.ts';

const LOCK_WAIT_MS_MAX = 30_000;
const LOCK_RETRY_MS = 1;
export const READ_BUSY_TIMEOUT_MS = 5_000;

/** `work` runs in one write transaction, which is durable when this resolves. Rejects if the lock is not to be had. */
export async function inWriteTransaction<T>({ database }: StoreConnection, work: () => T): Promise<T> {
  const giveUpAt = performance.now() + LOCK_WAIT_MS_MAX;
  for (;;) {
    const outcome = attempt(database, work);
    if (outcome !== undefined) return outcome.result;
    if (performance.now() > giveUpAt) {
      throw new StoreUnavailableError(`the store was busy for ${LOCK_WAIT_MS_MAX / 1_000} s`);
    }
    await sleep(LOCK_RETRY_MS);
  }
}

/** Undefined when another connection is writing. */
function attempt<T>(database: DatabaseSync, work: () => T): { readonly result: T } | undefined {
  database.exec('PRAGMA busy_timeout = 0; PRAGMA synchronous = FULL');
  try {
    if (!begin(database)) return undefined;
    const result = work();
    database.exec('COMMIT');
    return { result };
  } finally {
    // Some errors (a full disk) make SQLite roll back by itself.
    if (database.isTransaction) database.exec('ROLLBACK');
    database.exec(`PRAGMA busy_timeout = ${READ_BUSY_TIMEOUT_MS}; PRAGMA synchronous = NORMAL`);
  }
}

function begin(database: DatabaseSync): boolean {
  try {
    database.exec('BEGIN IMMEDIATE');
    return true;
  } catch (error) {
    if (isBusy(error)) return false;
    throw error;
  }
}

/** For the audit (rule 15); `detail` holds no personal data. */
export function writeAct(
  store: StoreConnection,
  tenant: number,
  kind: 'unmerge' | 'erase',
  { traceId, at }: Act,
  detail: Readonly<Record<string, unknown>>,
): void {
  store.run(
    'INSERT INTO audit VALUES (NULL, ?, ?, ?, ?, ?)',
    tenant,
    kind,
    uuidBytes(traceId),
    at,
    JSON.stringify(detail),
  );
}

/**
 * Rule 16. Takes the merges of one request out of a profile and keeps the nodes apart that they joined. Identifiers,
 * statements and events stay on their nodes, so nothing else changes: it is as if they had never been merged.
 */
export function unmerge(
  store: StoreConnection,
  tenant: number,
  id: string,
  mergedBy: string,
  act: Act,
): UnmergeResult | undefined {
  const profile = nodesById(store, tenant, id);
  if (profile === undefined) return undefined;
  const merges = mergesOf(store, profile.nodes);
  const cause = idBytes(mergedBy) === undefined ? null : mergedBy.toLowerCase();
  const undone = merges.filter(({ trace_id }) => uuidText(trace_id) === cause);
  if (undone.length === 0) return { undone: 0, profileIds: [profile.root.id] };
  const removed = undone.map(edgeOf);
  const survivors = regroup(profile.nodes, merges.filter((merge) => !undone.includes(merge)).map(edgeOf));
  for (const { no } of undone) store.run('DELETE FROM merges WHERE no = ?', no);
  writeAliases(store, survivors);
  for (const [a, b] of apartAfter(removed, survivors)) {
    for (const [one, other] of [
      [a, b],
      [b, a],
    ] as const) {
      store.run(
        'INSERT INTO apart VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING',
        one,
        other,
        uuidBytes(act.traceId),
        act.at,
      );
    }
  }
  const profileIds = survivingIds(profile.nodes, survivors);
  writeAct(store, tenant, 'unmerge', act, {
    profile_id: profile.root.id,
    merged_by: cause,
    undone: undone.length,
    profile_ids: profileIds,
  });
  return { undone: undone.length, profileIds };
}

function edgeOf({ node_a, node_b }: MergeRow): { nodes: [NodeNumber, NodeNumber] } {
  return { nodes: [node_a, node_b] };
}

function writeAliases(store: StoreConnection, survivors: ReadonlyMap<NodeNumber, NodeNumber>): void {
  for (const [node, survivor] of survivors) {
    store.run('DELETE FROM aliases WHERE node = ?', node);
    if (node !== survivor) store.run('INSERT INTO aliases VALUES (?, ?)', node, survivor);
  }
}

function survivingIds(nodes: readonly ProfileNode[], survivors: ReadonlyMap<NodeNumber, NodeNumber>): string[] {
  return nodes
    .filter(({ node }) => survivors.get(node) === node)
    .sort((a, b) => compareOrigins(a.origin, b.origin))
    .map(({ id }) => id);
}
