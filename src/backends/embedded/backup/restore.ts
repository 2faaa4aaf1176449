/**
 * Prepares a restored data folder for its first start, and finds what the restore undoes, as far as the previous data
 * folder shows. It compares the restored copy with that folder row by row, never by time: the clock may have been wrong.
 * Shows no personal data: people are identified by ids. The old folder is only read.
 *
 * Erased people: a node of the copy that the old store no longer has, with a match key that was erased there. A person
 * may be several profiles in the copy (merged since) or part of one (unmerged since): each erased node is named unless
 * its whole profile was erased, and the unmerges that separated others from it are named too.
 */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import type { EndedKey, UndoneByRestore } from '../../../cli/restore.ts';
import { keyFileOf, logFolderOf, storeFileOf } from '../../../data-folder/files.ts';
import { messageOf, OperatorError } from '../../../errors.ts';
import type { NodeNumber } from '../../../model.ts';
import { identifierTypeOf } from '../../../views/profile.ts';
import { tombstoneOf } from '../../../views/tombstone.ts';
import { BUSY_TIMEOUT_MS, textsIn, transaction } from '../database.ts';
import { isFullDisk } from '../disk.ts';
import { createLogEnds, rewriteLogEnds } from '../log/recovery.ts';
import { skipNumbersAfterRestore } from '../store/starts.ts';
import { uuidBytes, uuidText } from '../uuids.ts';

/** Notes the end of the log, which no backup has, and skips event numbers that the lost store may have given. */
export function prepareRestored(folder: string, now: number): void {
  skipNumbersAfterRestore(storeFileOf(folder), now);
  rewriteLogEnds(logFolderOf(folder));
  createLogEnds(logFolderOf(folder));
}

/** The installations that the files of a data folder name; none before the first start of a server. */
export function installationsOf(oldFolder: string): string[] {
  return [storeFileOf(oldFolder), keyFileOf(oldFolder)].flatMap((file) =>
    withOld(':memory:', file, (database) => textsIn(database, 'SELECT installation FROM old.belongs_to')),
  );
}

/**
 * Also copies the tombstones of the old store, so that the requests of erased people that wait in the restored log are
 * dropped, as they would have been there. `hasPending`: whether the restored log has requests that are not processed.
 */
export function undoneByRestore(oldFolder: string, restoredFolder: string, hasPending: boolean): UndoneByRestore {
  const people = withOld(storeFileOf(restoredFolder), storeFileOf(oldFolder), (store) => {
    refuseOtherStore(store, oldFolder);
    const erased = erasedNodes(store);
    const unmerged = undoneUnmerges(store, erased, hasPending);
    transaction(store, () => copyTombstones(store));
    return { unmerged_since: unmerged, erased_since: undoneErases(store, erased) };
  });
  const access = withOld(keyFileOf(restoredFolder), keyFileOf(oldFolder), (keys) => ({
    keys_ended_since: endedKeys(keys),
    members_removed_since: textsIn(
      keys,
      'SELECT id FROM main.members WHERE id NOT IN (SELECT id FROM old.members) ORDER BY no',
    ),
  }));
  return { ...people, ...access };
}

/** A store that does not continue the one in the backup does not have what was done since. */
function refuseOtherStore(store: DatabaseSync, oldFolder: string): void {
  const { isOther, isOlder } = store
    .prepare(
      `SELECT (SELECT id FROM main.identity) IS NOT (SELECT id FROM old.identity) AS isOther,
              (SELECT ifnull(max(position), 0) FROM main.positions)
                > (SELECT ifnull(max(position), 0) FROM old.positions) AS isOlder`,
    )
    .get() as { isOther: number; isOlder: number };
  if (isOther === 0 && isOlder === 0) return;
  const what = isOther === 1 ? 'is not the store that was backed up, but a new one' : 'is older than the backup';
  throw new OperatorError(`${resolve(storeFileOf(oldFolder))} ${what}. ${WITHOUT}`);
}

interface ErasedNode {
  readonly tenantId: string;
  readonly id: Uint8Array;
  readonly at: number;
}

function erasedNodes(store: DatabaseSync): Map<NodeNumber, ErasedNode> {
  const found = new Map<NodeNumber, ErasedNode>();
  if (newAudit(store, 'erase').length === 0) return found;
  const keysOf = store.prepare('SELECT type, value FROM main.identifiers WHERE node = ?');
  const erasedAt = store.prepare(
    'SELECT erased_at FROM old.tombstones JOIN old.tenants ON tenants.no = tenant WHERE tenants.id = ? AND hash = ?',
  );
  const goneNodes = store.prepare(
    `SELECT nodes.no, nodes.id, tenants.id AS tenantId FROM main.nodes JOIN main.tenants ON tenants.no = nodes.tenant
     WHERE NOT EXISTS (SELECT 1 FROM old.nodes AS kept WHERE kept.id = nodes.id) ORDER BY nodes.no`,
  );
  for (const row of goneNodes.iterate()) {
    const { no, id, tenantId } = row as unknown as { no: NodeNumber; id: Uint8Array; tenantId: string };
    const times = keysOf.all(no).flatMap((key) => {
      const { type, value } = key as unknown as { type: number; value: string };
      const at = erasedAt.get(tenantId, tombstoneOf(tenantId, { type: identifierTypeOf(type), value }))?.['erased_at'];
      return at === undefined ? [] : [Number(at)];
    });
    if (times.length > 0) found.set(no, { tenantId, id, at: Math.max(...times) });
  }
  return found;
}

/** A profile of which all nodes were erased is named once, by its root; of others each erased node is named. */
function undoneErases(
  store: DatabaseSync,
  erased: ReadonlyMap<NodeNumber, ErasedNode>,
): UndoneByRestore['erased_since'] {
  const rootOf = store.prepare('SELECT root FROM main.aliases WHERE node = ?');
  const aliasesOf = store.prepare('SELECT node FROM main.aliases WHERE root = ?');
  return [...erased].flatMap(([node, { tenantId: tenant, id, at }]) => {
    const root = (rootOf.get(node)?.['root'] ?? node) as NodeNumber;
    const isWhole = erased.has(root) && aliasesOf.all(root).every((row) => erased.has(row['node'] as NodeNumber));
    if (isWhole && root !== node) return [];
    return [{ tenant, profile_id: uuidText(id), at: new Date(at).toISOString() }];
  });
}

/** Merges between two erased nodes need no unmerge: both nodes are erased again. */
function undoneUnmerges(
  store: DatabaseSync,
  erased: ReadonlyMap<NodeNumber, ErasedNode>,
  hasPending: boolean,
): UndoneByRestore['unmerged_since'] {
  const merges = ['main', 'old'].map(
    (copy) =>
      `SELECT merges.tenant, merges.no, node_a, node_b, a.id AS id_a, b.id AS id_b FROM ${copy}.merges
       JOIN ${copy}.nodes AS a ON a.no = node_a JOIN ${copy}.nodes AS b ON b.no = node_b WHERE merges.trace_id = ?1`,
  );
  const mergesBy = store.prepare(
    `SELECT node_a, node_b, id_a, tenants.id AS tenantId, (id_a, id_b) IN (SELECT id_a, id_b FROM (${merges[1]})) AS isThere
     FROM (${merges[0]}) AS mine JOIN main.tenants ON tenants.no = mine.tenant ORDER BY mine.no`,
  );
  const found = new Map<string, UndoneByRestore['unmerged_since'][number]>();
  for (const { tenant, profile_id, trace_id } of newAudit(store, 'unmerge')) {
    if (trace_id === null) continue;
    const undone = mergesBy.all(uuidBytes(trace_id)) as unknown as {
      node_a: NodeNumber;
      node_b: NodeNumber;
      id_a: Uint8Array;
      tenantId: string;
      isThere: number;
    }[];
    // Not merged in the copy: it may be once its log is processed.
    if (undone.length === 0 && hasPending) found.set(trace_id + profile_id, { tenant, profile_id, trace_id });
    for (const merge of undone) {
      if (merge.tenantId !== tenant || merge.isThere === 1) continue;
      if (erased.has(merge.node_a) && erased.has(merge.node_b)) continue;
      const id = uuidText(merge.id_a);
      found.set(trace_id + id, { tenant, profile_id: id, trace_id });
    }
  }
  return [...found.values()];
}

interface Audited {
  readonly tenant: string;
  readonly profile_id: string;
  /** Of the request whose merge an unmerge undid. */
  readonly trace_id: string | null;
}

/** What the old store has in its audit and the copy does not, oldest first. */
function newAudit(store: DatabaseSync, kind: 'erase' | 'unmerge'): Audited[] {
  return store
    .prepare(
      `SELECT tenants.id AS tenant, json_extract(detail, '$.profile_id') AS profile_id,
              json_extract(detail, '$.merged_by') AS trace_id
       FROM old.audit JOIN old.tenants ON tenants.no = audit.tenant
       WHERE kind = ?1 AND audit.trace_id NOT IN (SELECT trace_id FROM main.audit WHERE kind = ?1) ORDER BY audit.no`,
    )
    .all(kind) as unknown as Audited[];
}

/** Includes tenants that the copy does not know yet: their first requests may wait in its log. */
function copyTombstones(store: DatabaseSync): void {
  store.exec(`
    INSERT INTO main.tenants (id, last_erased_at)
      SELECT tenants.id, max(erased_at) FROM old.tombstones JOIN old.tenants ON tenants.no = tenant GROUP BY tenants.id
      ON CONFLICT DO UPDATE SET last_erased_at = max(last_erased_at, excluded.last_erased_at);
    INSERT INTO main.tombstones
      SELECT mine.no, hash, erased_at FROM old.tombstones JOIN old.tenants AS theirs ON theirs.no = tenant
      JOIN main.tenants AS mine ON mine.id = theirs.id WHERE true
      ON CONFLICT DO UPDATE SET erased_at = max(erased_at, excluded.erased_at)`);
}

/** Keys that end earlier in the old folder than in the copy. */
function endedKeys(keys: DatabaseSync): EndedKey[] {
  const ended = keys.prepare(
    `SELECT theirs.id, theirs.name, coalesce(theirs.revoked_at, theirs.expires_at) AS at,
            iif(theirs.revoked_at IS NULL, 'roll', 'revoke') AS "by"
     FROM old.keys AS theirs JOIN main.keys AS mine ON mine.id = theirs.id
     WHERE mine.revoked_at IS NULL AND (theirs.revoked_at IS NOT NULL OR theirs.expires_at < mine.expires_at
       OR (theirs.expires_at IS NOT NULL AND mine.expires_at IS NULL)) ORDER BY theirs.no`,
  );
  const isoOf = (at: unknown): string => new Date(Number(at)).toISOString();
  return ended.all().map((row) => Object.assign({}, row as unknown as EndedKey, { at: isoOf(row['at']) }));
}

/** With the old file as `old` next to the tables of `file`, which are `main`. */
function withOld<T>(file: string, oldFile: string, work: (database: DatabaseSync) => T): T {
  if (!existsSync(oldFile)) throw cannotRead(oldFile, 'it is not there');
  using database = new DatabaseSync(file, { timeout: BUSY_TIMEOUT_MS });
  try {
    const url = pathToFileURL(oldFile);
    // Without a write-ahead log no process uses the file. SQLite would leave one there, which does not belong in a backup.
    url.search = existsSync(`${oldFile}-wal`) ? 'mode=ro' : 'immutable=1';
    database.prepare('ATTACH ? AS old').run(url.href);
    return work(database);
  } catch (error) {
    if (error instanceof OperatorError || isFullDisk(error)) throw error;
    throw cannotRead(oldFile, messageOf(error));
  }
}

const WITHOUT =
  'Restore without --old-data, and take from your own records who was erased and what was revoked since the backup.';

function cannotRead(file: string, reason: string): OperatorError {
  return new OperatorError(`${resolve(file)} cannot be read: ${reason}. ${WITHOUT}`);
}
