/**
 * Profiles as people read them, and why they are one person. A profile is a surviving node and all nodes aliased to it
 * (at most 100); what it shows is the fold over them (rule 13), made at every reading, so there is nothing to keep in
 * step with merges.
 */

import { compareOrigins } from '../../identity/origin.ts';
import { type Group, type Told, view } from '../../identity/statements.ts';
import { IDENTIFIER_TYPES, type IdentifierType, type NodeNumber, type Origin } from '../../model.ts';
import type {
  IdentifierLink,
  Page,
  PageRequest,
  Provenance,
  StoredIdentity,
  StoredMerge,
  StoredProfile,
  StoredRefusal,
} from '../../store.ts';
import { parseExact } from '../../validation/exact-json.ts';
import { idBytes, type StoreConnection } from './store-connection.ts';
import { cursorOf, numbersOf } from './store-cursor.ts';
import { uuidText } from './uuids.ts';

interface OriginColumns {
  readonly received_at: number;
  readonly trace_id: Uint8Array;
  readonly user_index: number;
}

interface NodeRow extends OriginColumns {
  readonly no: NodeNumber;
  readonly id: Uint8Array;
  readonly events: number;
  readonly first_seen: number;
  readonly last_seen: number;
  readonly known: string | null;
}

export interface ProfileNode {
  readonly node: NodeNumber;
  readonly id: string;
  readonly origin: Origin;
  readonly row: NodeRow;
}

export interface ProfileNodes {
  readonly root: ProfileNode;
  /** All of them, the survivor among them, oldest first. */
  readonly nodes: readonly ProfileNode[];
}

export interface IdentifierRow extends OriginColumns {
  readonly type: number;
  readonly value: string;
  readonly raw: string | null;
  readonly node: NodeNumber;
}

export interface MergeRow extends OriginColumns {
  readonly no: number;
  readonly node_a: NodeNumber;
  readonly node_b: NodeNumber;
  readonly from_node: NodeNumber;
  readonly into_node: NodeNumber;
  readonly via_type: number;
  readonly via_value: string;
}

interface RefusalRow extends OriginColumns {
  readonly type: number;
  readonly raw: string;
  readonly reason: StoredRefusal['reason'];
  readonly last_at: number;
  readonly count: number;
}

/** Of the profile that has, or was given by a merge, the node with this public id. */
export function nodesById(store: StoreConnection, tenant: number, id: string): ProfileNodes | undefined {
  const bytes = idBytes(id);
  if (bytes === undefined) return undefined;
  const row = store.get<{ no: NodeNumber }>('SELECT no FROM nodes WHERE id = ? AND tenant = ?', bytes, tenant);
  return row && nodesOf(store, row.no);
}

export function nodesByKey(
  store: StoreConnection,
  tenant: number,
  type: IdentifierType,
  normalised: string,
): ProfileNodes | undefined {
  const row = store.get<{ node: NodeNumber }>(
    'SELECT node FROM identifiers WHERE tenant = ? AND type = ? AND value = ?',
    tenant,
    IDENTIFIER_TYPES.indexOf(type),
    normalised,
  );
  return row && nodesOf(store, row.node);
}

function nodesOf(store: StoreConnection, node: NodeNumber): ProfileNodes {
  const alias = store.get<{ root: NodeNumber }>('SELECT root FROM aliases WHERE node = ?', node);
  const rootNo = alias?.root ?? node;
  const rows = store.all<NodeRow>(
    'SELECT * FROM nodes WHERE no = ?1 OR no IN (SELECT node FROM aliases WHERE root = ?1)',
    rootNo,
  );
  const nodes = rows.map(profileNode).sort((a, b) => compareOrigins(a.origin, b.origin));
  const root = nodes.find(({ node: no }) => no === rootNo);
  if (root === undefined) throw new Error(`node ${rootNo} has aliases and is not in the store`);
  return { root, nodes };
}

function profileNode(row: NodeRow): ProfileNode {
  return { node: row.no, id: uuidText(row.id), origin: originOf(row), row };
}

export function originOf({ received_at, trace_id, user_index }: OriginColumns): Origin {
  return { receivedAt: received_at, traceId: uuidText(trace_id), userIndex: user_index };
}

export function identifiersOf(store: StoreConnection, nodes: readonly ProfileNode[]): IdentifierRow[] {
  const rows = nodes.flatMap(({ node }) =>
    store.all<IdentifierRow>(
      `SELECT type, value, raw, node, coalesce(identifiers.received_at, nodes.received_at) AS received_at,
         coalesce(identifiers.trace_id, nodes.trace_id) AS trace_id,
         coalesce(identifiers.user_index, nodes.user_index) AS user_index
       FROM identifiers JOIN nodes ON nodes.no = identifiers.node WHERE node = ? ORDER BY type, value`,
      node,
    ),
  );
  return oldestFirst(rows);
}

/** Both ends of a merge are in one profile, so one end is enough to find it. */
export function mergesOf(store: StoreConnection, nodes: readonly ProfileNode[]): MergeRow[] {
  return oldestFirst(
    nodes.flatMap(({ node }) => store.all<MergeRow>('SELECT * FROM merges WHERE node_a = ? ORDER BY no', node)),
  );
}

function oldestFirst<Row extends OriginColumns>(rows: Row[]): Row[] {
  return rows.sort((a, b) => compareOrigins(originOf(a), originOf(b)));
}

export function readProfile(store: StoreConnection, { root, nodes }: ProfileNodes): StoredProfile {
  const identifiers = new Map<IdentifierType, string[]>(IDENTIFIER_TYPES.map((type) => [type, []]));
  for (const { type, raw, value } of identifiersOf(store, nodes)) identifiers.get(typeOf(type))?.push(raw ?? value);
  const groups = nodes.map(({ row }) => (row.known === null ? [] : (parseExact(row.known) as readonly Group[])));
  const { fields, properties } = view(groups);
  return {
    id: root.id,
    mergedIds: nodes.filter(({ node }) => node !== root.node).map(({ id }) => id),
    identifiers: Object.fromEntries(identifiers) as Record<IdentifierType, string[]>,
    profileFields: provenances(fields),
    userProperties: provenances(properties),
    firstSeen: Math.min(...nodes.map(({ row }) => row.first_seen)),
    lastSeen: Math.max(...nodes.map(({ row }) => row.last_seen)),
    eventCount: nodes.reduce((sum, { row }) => sum + row.events, 0),
  };
}

function provenances(told: ReadonlyMap<string, Told>): Map<string, Provenance> {
  const entries = [...told].map(([name, { value, origin }]): [string, Provenance] => [
    name,
    { value: JSON.stringify(value), traceId: origin.traceId, receivedAt: origin.receivedAt },
  ]);
  return new Map(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** In the order of the survivors' numbers, which is the order in which the processor made them. */
export function listProfiles(store: StoreConnection, tenant: number, page: PageRequest): Page<StoredProfile> {
  const [after = 0] = page.cursor === null ? [] : numbersOf('profiles', page.cursor, 1);
  const roots = store.all<{ no: NodeNumber }>(
    `SELECT no FROM nodes WHERE no > ? AND tenant = ? AND NOT EXISTS (SELECT 1 FROM aliases WHERE node = nodes.no)
     ORDER BY no LIMIT ?`,
    after,
    tenant,
    page.limit + 1,
  );
  const given = roots.slice(0, page.limit);
  const last = given.at(-1);
  const hasMore = roots.length > page.limit && last !== undefined;
  return {
    rows: given.map(({ no }) => readProfile(store, nodesOf(store, no))),
    nextCursor: hasMore ? cursorOf('profiles', last.no) : null,
  };
}

/** Rule 15: every link, merge and refusal of the profile with the request that caused it, oldest first. */
export function readIdentity(store: StoreConnection, { root, nodes }: ProfileNodes): StoredIdentity {
  const ids = new Map(nodes.map(({ node, id }) => [node, id]));
  // Who survived when two nodes merged may belong to another profile by now (an unmerge), and be erased with it.
  const idOf = (node: NodeNumber): string => ids.get(node) ?? publicId(store, node) ?? root.id;
  return {
    id: root.id,
    identifiers: identifiersOf(store, nodes).map((row) => identifierLink(row, idOf(row.node))),
    merges: mergesOf(store, nodes).map((row) => storedMerge(row, idOf)),
    refusals: oldestFirst(
      nodes.flatMap(({ node }) => store.all<RefusalRow>('SELECT * FROM refusals WHERE node = ?', node)),
    ).map(storedRefusal),
  };
}

export function publicId(store: StoreConnection, node: NodeNumber): string | undefined {
  const row = store.get<{ id: Uint8Array }>('SELECT id FROM nodes WHERE no = ?', node);
  return row && uuidText(row.id);
}

function identifierLink(row: IdentifierRow, nodeId: string): IdentifierLink {
  const { receivedAt: at, traceId, userIndex } = originOf(row);
  return { type: typeOf(row.type), value: row.raw ?? row.value, normalised: row.value, nodeId, traceId, userIndex, at };
}

function storedMerge(row: MergeRow, idOf: (node: NodeNumber) => string): StoredMerge {
  const { receivedAt: at, traceId, userIndex } = originOf(row);
  return {
    from: idOf(row.from_node),
    into: idOf(row.into_node),
    nodes: [idOf(row.node_a), idOf(row.node_b)],
    via: { type: typeOf(row.via_type), value: row.via_value },
    traceId,
    userIndex,
    at,
  };
}

function storedRefusal(row: RefusalRow): StoredRefusal {
  const { receivedAt: at, traceId, userIndex } = originOf(row);
  const { raw: value, reason, last_at: lastAt, count } = row;
  return { type: typeOf(row.type), value, reason, traceId, userIndex, at, lastAt, count };
}

export function typeOf(no: number): IdentifierType {
  const type = IDENTIFIER_TYPES[no];
  if (type === undefined) throw new Error(`there is no type of identifier ${no}`);
  return type;
}
