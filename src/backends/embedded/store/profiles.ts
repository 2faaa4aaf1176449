/**
 * Reads the rows from which views/profile.ts builds profiles and explains why they are one person. A profile is a
 * root and all nodes aliased to it (at most 100).
 */

import { IDENTIFIER_TYPES, type IdentifierType, type NodeNumber, type Origin } from '../../../model.ts';
import type { Page, PageRequest, StoredIdentity, StoredProfile } from '../../../store.ts';
import { scopedCursorOf, scopedNumbersOf, pageOf } from '../../../views/cursor.ts';
import {
  type IdentifierRow,
  identifierTypeOf,
  type MergeRow,
  oldestFirst,
  type ProfileNode,
  type ProfileNodes,
  profileNodes,
  type RefusalRow,
  storedIdentity,
  storedProfile,
} from '../../../views/profile.ts';
import { idBytes, type StoreConnection } from './connection.ts';
import { findState, type NodeState, PROFILE_RUNS } from './profile-runs.ts';
import { MATCH_KEYS, MatchKeyLookup } from './match-keys.ts';
import { uuidText } from '../uuids.ts';

/** Of an origin. */
const ORIGIN = 'received_at AS "receivedAt", trace_id AS "traceId", user_index AS "userIndex"';

interface OriginColumns {
  readonly receivedAt: number;
  readonly traceId: Uint8Array;
  readonly userIndex: number;
}

/** The node with this public id. */
export function nodeById(store: StoreConnection, tenant: number, id: string): NodeNumber | undefined {
  const bytes = idBytes(id);
  if (bytes === undefined) return undefined;
  return store.get<{ no: NodeNumber }>('SELECT no FROM nodes WHERE id = ? AND tenant = ?', bytes, tenant)?.no;
}

/** The profile that contains the node with this public id. */
export function nodesById(store: StoreConnection, tenant: number, id: string): ProfileNodes | undefined {
  const no = nodeById(store, tenant, id);
  return no === undefined ? undefined : nodesOf(store, no);
}

export function nodesByKey(
  store: StoreConnection,
  tenant: number,
  type: IdentifierType,
  normalised: string,
): ProfileNodes | undefined {
  const owner = new MatchKeyLookup(store.runs(MATCH_KEYS), store.hashOf).find(tenant, { type, value: normalised });
  if (owner === undefined) return undefined;
  // Found by its hash; here the text can be compared too, since the node's page is read anyway.
  const row = store.get<{ node: NodeNumber }>(
    'SELECT node FROM identifiers WHERE node = ? AND type = ? AND value = ? AND tenant = ?',
    owner.node,
    IDENTIFIER_TYPES.indexOf(type),
    normalised,
    tenant,
  );
  return row && nodesOf(store, row.node);
}

type ReadState = (node: NodeNumber) => NodeState | undefined;

/** All nodes of the profile that the node is part of. */
export function nodesOf(
  store: StoreConnection,
  node: NodeNumber,
  readState: ReadState = (no) => findState(store.runs(PROFILE_RUNS), no),
): ProfileNodes {
  const root = rootOf(store, node);
  const rows = store.all<OriginColumns & { readonly no: NodeNumber; readonly id: Uint8Array }>(
    `SELECT no, id, ${ORIGIN} FROM nodes WHERE no = ?1 OR no IN (SELECT node FROM aliases WHERE root = ?1)`,
    root,
  );
  const nodes = rows.map((row): ProfileNode => {
    const state = readState(row.no);
    if (state === undefined) throw new Error(`of node ${row.no} there is a row, and nothing in the runs`);
    const { events, first_seen: firstSeen, last_seen: lastSeen, properties } = state;
    return { node: row.no, id: uuidText(row.id), origin: originOf(row), events, firstSeen, lastSeen, properties };
  });
  return profileNodes(root, nodes);
}

/** The root of the profile that the node is part of. */
export function rootOf(store: StoreConnection, node: NodeNumber): NodeNumber {
  return store.get<{ root: NodeNumber }>('SELECT root FROM aliases WHERE node = ?', node)?.root ?? node;
}

function originOf({ receivedAt, traceId, userIndex }: OriginColumns): Origin {
  return { receivedAt, traceId: uuidText(traceId), userIndex };
}

/** The rows of all nodes, oldest first; `sql` selects those of one node. */
function rowsOf<Row extends { readonly type: IdentifierType; readonly origin: Origin }>(
  store: StoreConnection,
  nodes: readonly ProfileNode[],
  sql: string,
): Row[] {
  type Stored = OriginColumns & { readonly type: number };
  const rows = nodes.flatMap(({ node }) => store.all<Stored>(sql, node));
  return oldestFirst(
    rows.map(({ type, receivedAt, traceId, userIndex, ...row }) => {
      const origin = originOf({ receivedAt, traceId, userIndex });
      return Object.assign(row, { type: identifierTypeOf(type), origin }) as unknown as Row;
    }),
  );
}

/** Oldest first. */
export function identifiersOf(store: StoreConnection, nodes: readonly ProfileNode[]): IdentifierRow[] {
  return rowsOf(
    store,
    nodes,
    `SELECT type, value, raw, node, coalesce(identifiers.received_at, nodes.received_at) AS "receivedAt",
       coalesce(identifiers.trace_id, nodes.trace_id) AS "traceId",
       coalesce(identifiers.user_index, nodes.user_index) AS "userIndex"
     FROM identifiers JOIN nodes ON nodes.no = identifiers.node WHERE node = ? ORDER BY type, value`,
  );
}

/** Oldest first. Both ends of a merge are in one profile, so one end is enough to find it. */
export function mergesOf(store: StoreConnection, nodes: readonly ProfileNode[]): MergeRow[] {
  const rows = rowsOf<MergeRow['via'] & Omit<MergeRow, 'nodes' | 'via'> & { node_a: NodeNumber; node_b: NodeNumber }>(
    store,
    nodes,
    `SELECT no, node_a, node_b, from_node AS "from", into_node AS "into", via_type AS type, via_value AS value, ${ORIGIN}
     FROM merges WHERE node_a = ? ORDER BY no`,
  );
  return rows.map(({ node_a, node_b, type, value, ...row }) =>
    Object.assign(row, { nodes: [node_a, node_b] as const, via: { type, value } }),
  );
}

export function readProfile(store: StoreConnection, profile: ProfileNodes): StoredProfile {
  return storedProfile(profile, identifiersOf(store, profile.nodes));
}

/** In the order of the roots' numbers, which is the order of creation. */
export function listProfiles(store: StoreConnection, tenant: number, page: PageRequest): Page<StoredProfile> {
  const [after = 0] = page.cursor === null ? [] : scopedNumbersOf('profiles', [tenant], page.cursor, 1);
  const roots = store.all<{ no: NodeNumber }>(
    `SELECT no FROM nodes WHERE no > ? AND tenant = ? AND NOT EXISTS (SELECT 1 FROM aliases WHERE node = nodes.no)
     ORDER BY no LIMIT ?`,
    after,
    tenant,
    page.limit + 1,
  );
  return pageOf(
    roots,
    page.limit,
    ({ no }) => readProfile(store, nodesOf(store, no)),
    ({ no }) => scopedCursorOf('profiles', [tenant], no),
  );
}

/** Rule 15. */
export function readIdentity(store: StoreConnection, profile: ProfileNodes): StoredIdentity {
  const selectRefusals = `SELECT type, raw, reason, last_at AS "lastAt", count, ${ORIGIN} FROM refusals WHERE node = ?`;
  return storedIdentity(profile, {
    identifiers: identifiersOf(store, profile.nodes),
    merges: mergesOf(store, profile.nodes),
    refusals: rowsOf<RefusalRow>(store, profile.nodes, selectRefusals),
    publicId: (node) => publicId(store, node),
  });
}

export function publicId(store: StoreConnection, node: NodeNumber): string | undefined {
  const row = store.get<{ id: Uint8Array }>('SELECT id FROM nodes WHERE no = ?', node);
  return row && uuidText(row.id);
}
