/**
 * Writes what a transaction adds to nodes. The row of a new node is written at once, and never changed; its number of
 * events, first and last seen and properties (identity/property-updates.ts) are buffered until the commit, up to
 * `GATHERED_NODES_MAX` and `GATHERED_BYTES_MAX`, and written as a sorted run (store/profile-runs.ts).
 *
 * Most updates set the same names as the one before them. If all properties come from one update, a newer one of the
 * same names replaces it without a comparison.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { NewNode } from '../../../identity/graph.ts';
import { nodeIdOf } from '../../../identity/node-id.ts';
import { compareOrigins } from '../../../identity/origin.ts';
import type { NodeNumber, Origin, TenantId } from '../../../model.ts';
import type { UserToStore } from '../../../store-writer.ts';
import {
  boundedText,
  foldedGroups,
  groupsText,
  isList,
  NO_GROUPS,
  sumOf,
  type Visits,
} from '../../../views/node-properties.ts';
import type { HashOfKey } from '../../../views/keyed-hash.ts';
import { ProfileMemtable, type PropertyUpdate } from './profile-memtable.ts';
import { PROFILE_GROUP, PROFILE_RUNS, PROFILE_SIZES } from './profile-runs.ts';
import { NO_SHAPE, ShapeHashes } from './shape-hash.ts';
import { type RunsSizes, SortedRuns } from '../sorted-runs/sorted-runs.ts';
import { NODES_PER_BLOCK } from './schema.ts';
import { uuidBytes } from '../uuids.ts';

const GATHERED_NODES_MAX = 100_000;
/** Of properties: ordinary people fit, a few with megabytes each do not. */
const GATHERED_BYTES_MAX = 32 * 1024 * 1024;

export class StoreNodes {
  readonly #insert: StatementSync;
  readonly #insertBlock: StatementSync;
  readonly #shapes: ShapeHashes;
  readonly #gathered = new ProfileMemtable();
  readonly #runs: SortedRuns;
  /** The last written block. */
  #blockTenant = -1;
  #block = -1;

  constructor(database: DatabaseSync, hashOf: HashOfKey, sizes: RunsSizes = {}) {
    this.#shapes = new ShapeHashes(hashOf);
    this.#insert = database.prepare('INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?)');
    this.#insertBlock = database.prepare('INSERT INTO node_blocks VALUES (?, ?) ON CONFLICT DO NOTHING');
    this.#runs = new SortedRuns(database, PROFILE_RUNS, { ...PROFILE_SIZES, ...sizes });
  }

  forget(): void {
    this.#gathered.clear();
    this.#runs.forget();
    this.#blockTenant = -1;
  }

  write(tenant: { readonly no: number; readonly id: TenantId }, created: readonly NewNode[], visits: Visits): void {
    for (const { node, origin } of created) {
      this.#addBlock(tenant.no, Math.floor(node / NODES_PER_BLOCK));
      this.#create(tenant, node, origin, visits.get(node) ?? []);
      visits.delete(node);
    }
    for (const [node, ofNode] of visits) this.#gathered.add(node, sumOf(ofNode), this.#updateOf(ofNode));
    if (this.#gathered.count >= GATHERED_NODES_MAX || this.#gathered.textBytes >= GATHERED_BYTES_MAX) this.flush();
  }

  /** Call it before the transaction is committed. */
  flush(): void {
    this.#runs.put(PROFILE_GROUP, this.#gathered.rows);
    this.#gathered.clear();
  }

  /** Whether runs are being merged. */
  get isCompacting(): boolean {
    return this.#runs.isCompacting;
  }

  /** Continues merging while idle. */
  compact(): void {
    this.#runs.compact();
  }

  /** Nodes come in the order of their numbers, so this writes a row for every thousandth of them. */
  #addBlock(tenant: number, block: number): void {
    if (tenant === this.#blockTenant && block === this.#block) return;
    this.#insertBlock.run(tenant, block);
    this.#blockTenant = tenant;
    this.#block = block;
  }

  #create(
    tenant: { readonly no: number; readonly id: TenantId },
    node: NodeNumber,
    origin: Origin,
    visits: UserToStore | readonly UserToStore[],
  ): void {
    const { receivedAt, traceId, userIndex } = origin;
    const id = uuidBytes(nodeIdOf(tenant.id, origin));
    this.#insert.run(node, tenant.no, id, receivedAt, uuidBytes(traceId), userIndex);
    const { events, first, last } = sumOf(visits);
    const seen = { events, first: Math.min(receivedAt, first), last: Math.max(receivedAt, last) };
    this.#gathered.add(node, seen, this.#updateOf(visits));
  }

  #updateOf(visits: UserToStore | readonly UserToStore[]): PropertyUpdate | null {
    if (isList(visits)) {
      const newest = newestOfSameNames(visits);
      return newest === null ? updatesTogether(visits) : this.#updateOf(newest);
    }
    const { origin, propertyUpdate } = visits;
    if (propertyUpdate === null) return null;
    const { receivedAt } = origin;
    return {
      text: groupsText(origin, propertyUpdate),
      shape: this.#shapes.of(propertyUpdate.shape),
      writtenAt: receivedAt,
    };
  }
}

/** Null if they set nothing, or different names. */
function newestOfSameNames(visits: readonly UserToStore[]): UserToStore | null {
  let newest: UserToStore | null = null;
  for (const visit of visits) {
    if (visit.propertyUpdate === null) continue;
    if (newest !== null && visit.propertyUpdate.shape !== newest.propertyUpdate?.shape) return null;
    if (newest === null || compareOrigins(newest.origin, visit.origin) < 0) newest = visit;
  }
  return newest;
}

function updatesTogether(visits: readonly UserToStore[]): PropertyUpdate | null {
  const text = boundedText(foldedGroups(NO_GROUPS, visits));
  return text === null ? null : { text, shape: NO_SHAPE, writtenAt: 0 };
}
