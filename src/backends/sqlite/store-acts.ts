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
import { uuidBytes, uuidText } from './uuids.ts';

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
 * statements and events stay on their nodes, and the merges that remain say who survived without the others: it is as
 * if they had never been merged.
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
  const remaining = merges.filter((merge) => !undone.includes(merge));
  const survivors = regroup(profile.nodes, remaining.map(edgeOf));
  for (const { no } of undone) store.run('DELETE FROM merges WHERE no = ?', no);
  writeAliases(store, survivors);
  rewriteMerges(store, profile.nodes, remaining);
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

/** Who was merged into whom (rule 9), had there been these merges alone, in the order of the log. */
function rewriteMerges(store: StoreConnection, nodes: readonly ProfileNode[], merges: readonly MergeRow[]): void {
  const parts = new Map(nodes.map((node) => [node.node, { survivor: node, nodes: [node.node] }]));
  for (const { no, node_a, node_b, from_node, into_node } of merges.toSorted((a, b) => a.no - b.no)) {
    const a = parts.get(node_a);
    const b = parts.get(node_b);
    if (a === undefined || b === undefined) throw new Error(`merge ${no} joins nodes of different profiles`);
    const [into, from] = compareOrigins(a.survivor.origin, b.survivor.origin) < 0 ? [a, b] : [b, a];
    for (const node of from.nodes) parts.set(node, into);
    into.nodes.push(...from.nodes);
    if (from.survivor.node === from_node && into.survivor.node === into_node) continue;
    const sql = 'UPDATE merges SET from_node = ?, into_node = ? WHERE no = ?';
    store.run(sql, from.survivor.node, into.survivor.node, no);
  }
}

function survivingIds(nodes: readonly ProfileNode[], survivors: ReadonlyMap<NodeNumber, NodeNumber>): string[] {
  return nodes
    .filter(({ node }) => survivors.get(node) === node)
    .sort((a, b) => compareOrigins(a.origin, b.origin))
    .map(({ id }) => id);
}
