/**
 * Writes what a transaction adds to nodes. The row of a new node is written at once, and never changed; its number of
 * events, first and last seen and properties (identity/property-updates.ts) are buffered until the commit, and written
 * as a sorted run (store/profile-runs.ts).
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
  type Sum,
  sumOf,
  type Visits,
} from '../../../views/node-properties.ts';
import type { HashOfKey } from '../../../views/keyed-hash.ts';
import { PROFILE_GROUP, PROFILE_RUNS, PROFILE_SIZES } from './profile-runs.ts';
import { NO_SHAPE, ShapeHashes } from './shape-hash.ts';
import { BufferedRuns } from '../sorted-runs/buffered-runs.ts';
import type { RunsSizes, SortedRuns } from '../sorted-runs/sorted-runs.ts';
import { NODES_PER_BLOCK } from './schema.ts';
import { uuidBytes } from '../uuids.ts';

/** The properties set for a node, as text (identity/property-updates.ts). */
interface PropertyUpdate {
  readonly text: string;
  /** For a single update: which names it set (store/shape-hash.ts), and when it was received. Else NO_SHAPE. */
  readonly shape: number;
  readonly writtenAt: number;
}

export class StoreNodes {
  readonly #insert: StatementSync;
  readonly #insertBlock: StatementSync;
  readonly #shapes: ShapeHashes;
  readonly #deltas: BufferedRuns;
  /** The last written block. */
  #blockTenant = -1;
  #block = -1;

  constructor(database: DatabaseSync, hashOf: HashOfKey, sizes: RunsSizes = {}) {
    this.#shapes = new ShapeHashes(hashOf);
    this.#insert = database.prepare('INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?)');
    this.#insertBlock = database.prepare('INSERT INTO node_blocks VALUES (?, ?) ON CONFLICT DO NOTHING');
    this.#deltas = new BufferedRuns(database, PROFILE_RUNS, () => PROFILE_GROUP, { ...PROFILE_SIZES, ...sizes });
  }

  forget(): void {
    this.#deltas.forget();
    this.#blockTenant = -1;
  }

  write(tenant: { readonly no: number; readonly id: TenantId }, created: readonly NewNode[], visits: Visits): void {
    for (const { node, origin } of created) {
      this.#addBlock(tenant.no, Math.floor(node / NODES_PER_BLOCK));
      this.#create(tenant, node, origin, visits.get(node) ?? []);
      visits.delete(node);
    }
    for (const [node, ofNode] of visits) this.#add(node, sumOf(ofNode), this.#updateOf(ofNode));
  }

  /** Call it before the transaction is committed. */
  flush(): void {
    this.#deltas.flush();
  }

  get trees(): readonly SortedRuns[] {
    return [this.#deltas.runs];
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
    this.#add(node, seen, this.#updateOf(visits));
  }

  #add(node: NodeNumber, { events, first, last }: Sum, update: PropertyUpdate | null): void {
    const shape = update?.shape ?? NO_SHAPE;
    const writtenAt = update === null || shape === NO_SHAPE ? last : update.writtenAt;
    this.#deltas.put([node], [events, first, last, writtenAt, shape], update?.text);
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
