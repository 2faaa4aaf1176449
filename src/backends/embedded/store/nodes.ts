/**
 * Writes what a transaction adds to nodes. The row of a new node is written at once, and never changed; its number of
 * events, first and last seen and properties (identity/property-updates.ts) are buffered until the commit, and written
 * as a sorted run (store/profile-runs.ts).
 *
 * Most updates set the same names as the one before them. If all properties come from one update, a newer one of the
 * same names replaces it without a comparison.
 */

import type { NewNode } from '../../../identity/graph.ts';
import { nodeIdOf } from '../../../identity/node-id.ts';
import { compareOrigins } from '../../../identity/origin.ts';
import type { NodeNumber, Origin } from '../../../model.ts';
import type { UserToStore } from '../../../store-writer.ts';
import {
  boundedText,
  foldedGroups,
  groupsText,
  NO_GROUPS,
  type Sum,
  sumOf,
  type Visits,
} from '../../../views/node-properties.ts';
import type { StoreConnection, Tenant } from './connection.ts';
import { NO_SHAPE, profileDeltas, ShapeHashes } from './profile-runs.ts';
import type { BufferedRuns } from '../sorted-runs/buffered-runs.ts';
import type { RunsSizes } from '../sorted-runs/sorted-runs.ts';
import { NODES_PER_BLOCK } from './schema.ts';
import { uuidBytes } from '../uuids.ts';

export class StoreNodes {
  readonly deltas: BufferedRuns;
  readonly #store: StoreConnection;
  readonly #shapes: ShapeHashes;

  constructor(store: StoreConnection, sizes?: RunsSizes) {
    this.#store = store;
    this.#shapes = new ShapeHashes(store.hashOf);
    this.deltas = profileDeltas(store.database, sizes);
  }

  write(tenant: Tenant, created: readonly NewNode[], visits: Visits): void {
    for (const block of new Set(created.map(({ node }) => Math.floor(node / NODES_PER_BLOCK)))) {
      this.#store.run('INSERT INTO node_blocks VALUES (?, ?) ON CONFLICT DO NOTHING', tenant.no, block);
    }
    for (const { node, origin } of created) {
      this.#create(tenant, node, origin, visits.get(node) ?? []);
      visits.delete(node);
    }
    for (const [node, ofNode] of visits) this.#add(node, sumOf(ofNode), ofNode);
  }

  #create(tenant: Tenant, node: NodeNumber, origin: Origin, visits: readonly UserToStore[]): void {
    const { receivedAt, traceId, userIndex } = origin;
    const id = uuidBytes(nodeIdOf(tenant.id, origin));
    const values = [node, tenant.no, id, receivedAt, uuidBytes(traceId), userIndex];
    this.#store.run('INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?)', ...values);
    const { events, first, last } = sumOf(visits);
    const seen = { events, first: Math.min(receivedAt, first), last: Math.max(receivedAt, last) };
    this.#add(node, seen, visits);
  }

  #add(node: NodeNumber, { events, first, last }: Sum, visits: readonly UserToStore[]): void {
    const newest = newestOfSameNames(visits);
    if (!newest?.propertyUpdate) {
      const text = boundedText(foldedGroups(NO_GROUPS, visits)) ?? '';
      this.deltas.put([node], [events, first, last, last, NO_SHAPE], text);
      return;
    }
    const { origin, propertyUpdate } = newest;
    const shape = this.#shapes.of(propertyUpdate.shape);
    const writtenAt = shape === NO_SHAPE ? last : origin.receivedAt;
    this.deltas.put([node], [events, first, last, writtenAt, shape], groupsText(origin, propertyUpdate));
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
