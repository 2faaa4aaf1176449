/**
 * What a restore undoes, as far as the previous data folder shows. It compares the restored copy with that folder row by
 * row, never by time: the clock may have been wrong. Shows no personal data: people are identified by ids. The old folder
 * is only read.
 *
 * Erased people: a node of the copy that the old store no longer has, with a match key that was erased there. A person
 * may be several profiles in the copy (merged since) or part of one (unmerged since): each erased node is named unless
 * its whole profile was erased, and the unmerges that separated others from it are named too.
 */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { EndedKey, UndoneByRestore, UndoneErase, UndoneUnmerge } from '../../../backup/undone.ts';
import { keyFileOf, storeFileOf } from '../../../data-folder/files.ts';
import { messageOf, OperatorError } from '../../../errors.ts';
import type { NodeNumber } from '../../../model.ts';
import { identifierTypeOf } from '../../../views/profile.ts';
import { tombstoneOf } from '../../../views/tombstone.ts';
import { BUSY_TIMEOUT_MS, openImmutable, textsIn, transaction } from '../database.ts';
import { uuidBytes, uuidText } from '../uuids.ts';

/** The installations that the files of a data folder name; none before the first start of a server. */
export function installationsOf(oldFolder: string): string[] {
  return [storeFileOf(oldFolder), keyFileOf(oldFolder)].flatMap((file) =>
    inOld(file, (database) => textsIn(database, 'SELECT installation FROM belongs_to')),
  );
}

/**
 * Also copies the tombstones of the old store, so that the requests of erased people that wait in the restored log are
 * dropped, as they would have been there. `hasPending`: whether there are such requests.
 */
export function undoneByRestore(oldFolder: string, restoredFolder: string, hasPending: boolean): UndoneByRestore {
  using restored = new DatabaseSync(storeFileOf(restoredFolder), { timeout: BUSY_TIMEOUT_MS });
  const { tombstones, ...people } = inOld(storeFileOf(oldFolder), (old) => {
    refuseOtherStore(old, restored, oldFolder);
    const erased = erasedNodes(old, restored);
    return {
      unmerged: undoneUnmerges(old, restored, erased, hasPending),
      erased: undoneErases(restored, erased),
      tombstones: newTombstones(old, restored),
    };
  });
  transaction(restored, () => writeTombstones(restored, tombstones));
  using keys = new DatabaseSync(keyFileOf(restoredFolder), { timeout: BUSY_TIMEOUT_MS });
  const access = inOld(keyFileOf(oldFolder), (oldKeys) => ({
    endedKeys: endedKeys(oldKeys, keys),
    removedMembers: removedMembers(oldKeys, keys),
  }));
  return { ...people, ...access };
}

/** A store that does not continue the one in the backup does not have what was done since. */
function refuseOtherStore(old: DatabaseSync, restored: DatabaseSync, oldFolder: string): void {
  const [before, after] = [restored, old].map((database) => ({
    id: database.prepare('SELECT id FROM identity').get()?.['id'],
    position: Number(database.prepare('SELECT max(position) AS position FROM positions').get()?.['position'] ?? 0),
  }));
  const isOther = before?.id !== after?.id;
  if (!isOther && (before?.position ?? 0) <= (after?.position ?? 0)) return;
  const what = isOther ? 'is not the store that was backed up, but a new one' : 'is older than the backup';
  throw new OperatorError(`${resolve(storeFileOf(oldFolder))} ${what}. ${WITHOUT}`);
}

interface ErasedNode {
  readonly tenantId: string;
  readonly id: Uint8Array;
  readonly at: number;
}

function erasedNodes(old: DatabaseSync, restored: DatabaseSync): Map<NodeNumber, ErasedNode> {
  const found = new Map<NodeNumber, ErasedNode>();
  if (newAudit(old, restored, 'erase').length === 0) return found;
  const tenants = tenantIds(restored);
  const isThere = old.prepare('SELECT 1 FROM nodes WHERE id = ?');
  const keysOf = restored.prepare('SELECT type, value FROM identifiers WHERE node = ?');
  const erasedAt = old.prepare(
    'SELECT erased_at FROM tombstones JOIN tenants ON tenants.no = tombstones.tenant WHERE tenants.id = ? AND hash = ?',
  );
  for (const row of restored.prepare('SELECT no, tenant, id FROM nodes ORDER BY no').iterate()) {
    const node = row as unknown as { no: NodeNumber; tenant: number; id: Uint8Array };
    if (isThere.get(node.id) !== undefined) continue;
    const tenantId = tenants.get(node.tenant) ?? '';
    const times = keysOf.all(node.no).flatMap((key) => {
      const { type, value } = key as unknown as { type: number; value: string };
      const at = erasedAt.get(tenantId, tombstoneOf(tenantId, { type: identifierTypeOf(type), value }))?.['erased_at'];
      return at === undefined ? [] : [Number(at)];
    });
    if (times.length > 0) found.set(node.no, { tenantId, id: node.id, at: Math.max(...times) });
  }
  return found;
}

/** A profile of which all nodes were erased is named once, by its root; of others each erased node is named. */
function undoneErases(restored: DatabaseSync, erased: ReadonlyMap<NodeNumber, ErasedNode>): UndoneErase[] {
  const rootOf = restored.prepare('SELECT root FROM aliases WHERE node = ?');
  const aliasesOf = restored.prepare('SELECT node FROM aliases WHERE root = ?');
  return [...erased].flatMap(([node, { tenantId, id, at }]) => {
    const root = (rootOf.get(node)?.['root'] ?? node) as NodeNumber;
    const isWhole = erased.has(root) && aliasesOf.all(root).every((row) => erased.has(row['node'] as NodeNumber));
    return isWhole && root !== node ? [] : [{ tenantId, profileId: uuidText(id), at }];
  });
}

/** Merges between two erased nodes need no unmerge: both nodes are erased again. */
function undoneUnmerges(
  old: DatabaseSync,
  restored: DatabaseSync,
  erased: ReadonlyMap<NodeNumber, ErasedNode>,
  hasPending: boolean,
): UndoneUnmerge[] {
  const unmerges = newAudit(old, restored, 'unmerge');
  if (unmerges.length === 0) return [];
  const tenants = tenantIds(restored);
  const isThere = old.prepare(
    `SELECT 1 FROM nodes AS a JOIN merges ON merges.node_a = a.no JOIN nodes AS b ON b.no = merges.node_b
     WHERE a.id = ? AND b.id = ? AND merges.trace_id = ?`,
  );
  const mergesBy = restored.prepare(
    `SELECT merges.tenant, merges.node_a, merges.node_b, a.id AS id_a, b.id AS id_b
     FROM merges JOIN nodes AS a ON a.no = merges.node_a JOIN nodes AS b ON b.no = merges.node_b
     WHERE merges.trace_id = ? ORDER BY merges.no`,
  );
  const found = new Map<string, UndoneUnmerge>();
  for (const { tenantId, profileId, mergedBy } of unmerges) {
    if (mergedBy === null) continue;
    const merges = mergesBy.all(uuidBytes(mergedBy)) as unknown as {
      tenant: number;
      node_a: NodeNumber;
      node_b: NodeNumber;
      id_a: Uint8Array;
      id_b: Uint8Array;
    }[];
    // Not merged in the copy: it may be once its log is processed.
    if (merges.length === 0 && hasPending) found.set(mergedBy + profileId, { tenantId, profileId, mergedBy });
    for (const { tenant, node_a, node_b, id_a, id_b } of merges) {
      if (tenants.get(tenant) !== tenantId || (erased.has(node_a) && erased.has(node_b))) continue;
      if (isThere.get(id_a, id_b, uuidBytes(mergedBy)) !== undefined) continue;
      const id = uuidText(id_a);
      found.set(mergedBy + id, { tenantId, profileId: id, mergedBy });
    }
  }
  return [...found.values()];
}

interface Audited {
  readonly tenantId: string;
  readonly profileId: string;
  /** The request whose merge an unmerge undid. */
  readonly mergedBy: string | null;
}

/** What the old store has in its audit and the copy does not, oldest first. */
function newAudit(old: DatabaseSync, restored: DatabaseSync, kind: 'erase' | 'unmerge'): Audited[] {
  const known = new Set(textsIn(restored, 'SELECT trace_id FROM audit WHERE kind = ?', kind));
  return old
    .prepare(
      `SELECT tenants.id AS tenantId, trace_id, json_extract(detail, '$.profile_id') AS profileId,
              json_extract(detail, '$.merged_by') AS mergedBy
       FROM audit JOIN tenants ON tenants.no = audit.tenant WHERE kind = ? ORDER BY audit.no`,
    )
    .all(kind)
    .filter((row) => !known.has(String(row['trace_id']))) as unknown as Audited[];
}

interface NewTombstone {
  readonly tenantId: string;
  readonly hash: Uint8Array;
  readonly erased_at: number;
}

function newTombstones(old: DatabaseSync, restored: DatabaseSync): NewTombstone[] {
  const find = restored.prepare(
    'SELECT erased_at FROM tombstones JOIN tenants ON tenants.no = tombstones.tenant WHERE tenants.id = ? AND hash = ?',
  );
  const found: NewTombstone[] = [];
  const all = old.prepare(
    'SELECT tenants.id AS tenantId, hash, erased_at FROM tombstones JOIN tenants ON tenants.no = tombstones.tenant',
  );
  for (const row of all.iterate()) {
    const tombstone = row as unknown as NewTombstone;
    const known = find.get(tombstone.tenantId, tombstone.hash)?.['erased_at'];
    if (known === undefined || Number(known) < tombstone.erased_at) found.push(tombstone);
  }
  return found;
}

/** Includes tenants that the copy does not know yet: their first requests may wait in its log. */
function writeTombstones(restored: DatabaseSync, tombstones: readonly NewTombstone[]): void {
  const writeTenant = restored.prepare(
    `INSERT INTO tenants (id, last_erased_at) VALUES (?, ?)
     ON CONFLICT DO UPDATE SET last_erased_at = max(last_erased_at, excluded.last_erased_at)`,
  );
  const write = restored.prepare(
    `INSERT INTO tombstones SELECT no, ?, ? FROM tenants WHERE id = ?
     ON CONFLICT DO UPDATE SET erased_at = excluded.erased_at`,
  );
  for (const { tenantId, hash, erased_at } of tombstones) {
    writeTenant.run(tenantId, erased_at);
    write.run(hash, erased_at, tenantId);
  }
}

/** Keys that end earlier in the old folder than in the copy. */
function endedKeys(old: DatabaseSync, restored: DatabaseSync): EndedKey[] {
  const find = restored.prepare('SELECT expires_at, revoked_at FROM keys WHERE id = ?');
  const ended = old
    .prepare(
      'SELECT id, name, expires_at, revoked_at FROM keys WHERE coalesce(revoked_at, expires_at) IS NOT NULL ORDER BY no',
    )
    .all() as unknown as { id: string; name: string; expires_at: number | null; revoked_at: number | null }[];
  return ended.flatMap(({ id, name, expires_at, revoked_at }): EndedKey[] => {
    const copy = find.get(id);
    if (copy === undefined || copy['revoked_at'] !== null) return [];
    if (revoked_at !== null) return [{ id, name, at: revoked_at, isRolled: false }];
    const isEarlier = expires_at !== null && expires_at < Number(copy['expires_at'] ?? Number.POSITIVE_INFINITY);
    return isEarlier ? [{ id, name, at: expires_at, isRolled: true }] : [];
  });
}

function removedMembers(old: DatabaseSync, restored: DatabaseSync): string[] {
  const find = old.prepare('SELECT 1 FROM members WHERE id = ?');
  return textsIn(restored, 'SELECT id FROM members ORDER BY no').filter((id) => find.get(id) === undefined);
}

function tenantIds(database: DatabaseSync): Map<number, string> {
  const rows = database.prepare('SELECT no, id FROM tenants').all();
  return new Map(rows.map((row) => [Number(row['no']), String(row['id'])]));
}

function inOld<T>(file: string, work: (database: DatabaseSync) => T): T {
  if (!existsSync(file)) throw cannotRead(file, 'it is not there');
  try {
    // Without a write-ahead log no process uses the file. SQLite would leave one there, which does not belong in a backup.
    using database = existsSync(`${file}-wal`)
      ? new DatabaseSync(file, { readOnly: true, timeout: BUSY_TIMEOUT_MS })
      : openImmutable(file);
    return work(database);
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw cannotRead(file, messageOf(error));
  }
}

const WITHOUT =
  'Restore without --old-data, and take from your own records who was erased and what was revoked since the backup.';

function cannotRead(file: string, reason: string): OperatorError {
  return new OperatorError(`${resolve(file)} cannot be read: ${reason}. ${WITHOUT}`);
}
