/**
 * Writes what a batch tells of nodes: how many events, when first and last seen, and the statements, folded into what
 * was known (identity/statements.ts). Each node of a batch is read and written once, in the order of their numbers, so
 * that neighbours share a page.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { NewNode } from '../../identity/graph.ts';
import { nodeIdOf } from '../../identity/node-id.ts';
import { type Group, state } from '../../identity/statements.ts';
import type { NodeNumber, Origin, TenantId } from '../../model.ts';
import { parseExact } from '../../validation/exact-json.ts';
import { uuidBytes } from './store-schema.ts';

/** One user that went to a node. */
export interface Visit {
  readonly origin: Origin;
  readonly events: number;
  readonly fields: Readonly<Record<string, unknown>> | null;
  readonly properties: Readonly<Record<string, unknown>> | null;
}

interface NodeRow {
  readonly events: number;
  readonly first_seen: number;
  readonly last_seen: number;
  readonly known: string | null;
}

const NOTHING: Readonly<Record<string, unknown>> = {};
const NOTHING_KNOWN: readonly Group[] = [];

export class StoreNodes {
  readonly #insert: StatementSync;
  readonly #select: StatementSync;
  readonly #update: StatementSync;

  constructor(database: DatabaseSync) {
    this.#insert = database.prepare('INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
    this.#select = database.prepare('SELECT events, first_seen, last_seen, known FROM nodes WHERE no = ?');
    this.#update = database.prepare(
      'UPDATE nodes SET events = ?, first_seen = ?, last_seen = ?, known = ? WHERE no = ?',
    );
  }

  write(
    tenant: { readonly no: number; readonly id: TenantId },
    created: readonly NewNode[],
    visits: ReadonlyMap<NodeNumber, readonly Visit[]>,
  ): void {
    const isNew = new Set<NodeNumber>();
    for (const { node, origin } of created) {
      isNew.add(node);
      const { receivedAt, traceId, userIndex } = origin;
      const told = fold(rowOfNewNode(receivedAt), visits.get(node) ?? []);
      this.#insert.run(
        node,
        tenant.no,
        uuidBytes(nodeIdOf(tenant.id, origin)),
        receivedAt,
        uuidBytes(traceId),
        userIndex,
        told.events,
        told.first_seen,
        told.last_seen,
        told.known,
      );
    }
    const known = [...visits.keys()].filter((node) => !isNew.has(node)).sort((a, b) => a - b);
    for (const node of known) {
      const row = this.#select.get(node) as NodeRow | undefined;
      if (row === undefined) throw new Error(`node ${node} is not in the store`);
      const told = fold(row, visits.get(node) ?? []);
      this.#update.run(told.events, told.first_seen, told.last_seen, told.known, node);
    }
  }
}

function rowOfNewNode(receivedAt: number): NodeRow {
  return { events: 0, first_seen: receivedAt, last_seen: receivedAt, known: null };
}

function fold(row: NodeRow, visits: readonly Visit[]): NodeRow {
  let { events, first_seen, last_seen } = row;
  let groups: readonly Group[] | undefined;
  for (const { origin, events: more, fields, properties } of visits) {
    events += more;
    if (origin.receivedAt < first_seen) first_seen = origin.receivedAt;
    if (origin.receivedAt > last_seen) last_seen = origin.receivedAt;
    if (fields === null && properties === null) continue;
    groups ??= row.known === null ? NOTHING_KNOWN : (parseExact(row.known) as readonly Group[]);
    groups = state(groups, origin, fields ?? NOTHING, properties ?? NOTHING);
  }
  const known = groups === undefined ? row.known : JSON.stringify(groups);
  return { events, first_seen, last_seen, known };
}
