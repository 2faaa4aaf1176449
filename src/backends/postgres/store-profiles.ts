/**
 * Reads the rows from which views/profile.ts builds profiles and explains why they are one person. Every query is one
 * statement, whatever the number of profiles and nodes, so nodes and identifiers are consistent. The identifiers,
 * merges and refusals of a node come with it, as JSON.
 */

import { IDENTIFIER_TYPES, type IdentifierType, type NodeNumber } from '../../model.ts';
import type { Page, PageRequest, StoredIdentity, StoredProfile, StoredRefusal } from '../../store.ts';
import { scopedCursorOf, scopedNumbersOf } from '../../views/cursor.ts';
import { pageOf } from '../../views/page.ts';
import { NAMED_BYTES_MAX } from '../../views/person.ts';
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
} from '../../views/profile.ts';
import { uuidOf } from '../../views/uuid.ts';
import type { Queryable } from './pool.ts';
import { isStorable } from './store-reads.ts';

type OriginCells = readonly [receivedAt: number, traceId: string, userIndex: number];
type IdentifierCells = readonly [type: number, value: string, raw: string | null, ...OriginCells];
type MergeCells = readonly [
  no: number,
  nodeB: NodeNumber,
  from: NodeNumber,
  into: NodeNumber,
  viaType: number,
  viaValue: string,
  ...OriginCells,
];
type RefusalCells = readonly [
  type: number,
  raw: string,
  reason: StoredRefusal['reason'],
  lastAt: number,
  count: number,
  ...OriginCells,
];

export interface NodeColumns {
  readonly no: NodeNumber;
  readonly root: NodeNumber;
  readonly id: string;
  readonly received_at: number;
  readonly trace_id: string;
  readonly user_index: number;
  readonly events: number;
  readonly first_seen: number;
  readonly last_seen: number;
  /** Only where a profile is read. */
  readonly properties?: string | null;
  readonly identifiers: readonly IdentifierCells[] | null;
}

interface IdentityColumns extends NodeColumns {
  readonly merges: readonly MergeCells[] | null;
  readonly refusals: readonly RefusalCells[] | null;
  /** Public ids of the nodes that merges name, as far as they exist. */
  readonly named: readonly (readonly [NodeNumber, string])[] | null;
}

/** Without the properties, which may be megabytes. */
export const NODE_COLUMNS =
  'n.no, coalesce(n.root, n.no) AS root, n.id, n.received_at, n.trace_id, n.user_index, n.events, n.first_seen, ' +
  'n.last_seen';

const PROPERTIES = 'n.properties';

/** In the order of the SQLite store: by type and value. */
export const IDENTIFIERS = `
  (SELECT json_agg(json_build_array(i.type, i.value, i.raw, coalesce(i.received_at, n.received_at),
            coalesce(i.trace_id, n.trace_id), coalesce(i.user_index, n.user_index)) ORDER BY i.type, i.value)
   FROM identifiers AS i WHERE i.node = n.no) AS identifiers`;

export const MERGES = `
  (SELECT json_agg(json_build_array(m.no, m.node_b, m.from_node, m.into_node, m.via_type, m.via_value, m.received_at,
            m.trace_id, m.user_index) ORDER BY m.no)
   FROM merges AS m WHERE m.node_a = n.no) AS merges`;

const REFUSALS = `
  (SELECT json_agg(json_build_array(r.type, r.raw, r.reason, r.last_at, r.count, r.received_at, r.trace_id,
            r.user_index) ORDER BY r.type, r.value, r.reason)
   FROM refusals AS r WHERE r.node = n.no) AS refusals`;

const NAMED = `
  (SELECT json_agg(json_build_array(o.no, o.id))
   FROM merges AS m JOIN nodes AS o ON o.no IN (m.from_node, m.into_node, m.node_a, m.node_b)
   WHERE m.node_a = n.no) AS named`;

/** All nodes of the profiles whose survivors `roots` (a query) returns as `no`. */
function nodesSql(roots: string, ...columns: readonly string[]): string {
  return `
    WITH roots AS MATERIALIZED (${roots})
    SELECT ${[NODE_COLUMNS, ...columns].join(', ')} FROM roots JOIN nodes AS n ON n.no = roots.no
    UNION ALL
    SELECT ${[NODE_COLUMNS, ...columns].join(', ')} FROM roots JOIN nodes AS n ON n.root = roots.no`;
}

const ROOT_BY_ID = 'SELECT coalesce(root, no) AS no FROM nodes WHERE id = $2 AND tenant = $1';
const ROOT_BY_KEY = `
  SELECT coalesce(nodes.root, nodes.no) AS no FROM identifiers JOIN nodes ON nodes.no = identifiers.node
  WHERE identifiers.tenant = $1 AND type = $2 AND value = $3`;
const ROOTS_BY_ID = 'SELECT DISTINCT coalesce(root, no) AS no FROM nodes WHERE id = ANY($2) AND tenant = $1';
const ROOTS_BY_NUMBER = 'SELECT no FROM nodes WHERE no = ANY($1) AND root IS NULL';
const ROOTS_AFTER = 'SELECT no FROM nodes WHERE tenant = $1 AND no > $2 AND root IS NULL ORDER BY no LIMIT $3';

/** $1 the numbers of survivors. */
export const CANDIDATES_BY_NUMBER = nodesSql(ROOTS_BY_NUMBER, PROPERTIES, IDENTIFIERS);
/** $1 the numbers of survivors. The nodes with the size of their properties. */
export const SIZES_BY_NUMBER = nodesSql(
  ROOTS_BY_NUMBER,
  'octet_length(n.properties) AS bytes',
  'NULL::json AS identifiers',
);
/** $1 the tenant, $2 public ids. For names: without properties that are too long. */
export const PEOPLE_BY_ID = nodesSql(
  ROOTS_BY_ID,
  `CASE WHEN octet_length(n.properties) <= ${NAMED_BYTES_MAX} THEN n.properties END AS properties`,
  IDENTIFIERS,
);

/** The nodes of each profile, by its survivor. */
export async function nodesByRoot(
  db: Queryable,
  sql: string,
  values: readonly unknown[],
): Promise<Map<NodeNumber, NodeColumns[]>> {
  const { rows } = await db.query<NodeColumns>(sql, [...values]);
  return Map.groupBy(rows, ({ root }) => root);
}

/** By the public id of any of its nodes. */
export async function readProfile(db: Queryable, tenant: number, id: string): Promise<StoredProfile | undefined> {
  const uuid = uuidOf(id);
  if (uuid === undefined) return undefined;
  const { rows } = await db.query<NodeColumns>(nodesSql(ROOT_BY_ID, PROPERTIES, IDENTIFIERS), [tenant, uuid]);
  return profilesOf(rows)[0];
}

/** The identifiers of a profile; undefined for an unknown one. */
export async function readIdentifiers(db: Queryable, tenant: number, id: string): Promise<IdentifierRow[] | undefined> {
  const uuid = uuidOf(id);
  if (uuid === undefined) return undefined;
  const { rows } = await db.query<NodeColumns>(nodesSql(ROOT_BY_ID, IDENTIFIERS), [tenant, uuid]);
  return rows.length === 0 ? undefined : identifiersOf(rows);
}

export async function findProfile(
  db: Queryable,
  tenant: number,
  type: IdentifierType,
  normalised: string,
): Promise<StoredProfile | undefined> {
  if (!isStorable(normalised)) return undefined;
  const values = [tenant, IDENTIFIER_TYPES.indexOf(type), normalised];
  const { rows } = await db.query<NodeColumns>(nodesSql(ROOT_BY_KEY, PROPERTIES, IDENTIFIERS), values);
  return profilesOf(rows)[0];
}

/** By the survivors' numbers: for one processor that is the order of creation. */
export async function listProfiles(db: Queryable, tenant: number, page: PageRequest): Promise<Page<StoredProfile>> {
  const [after = 0] = page.cursor === null ? [] : scopedNumbersOf('profiles', [tenant], page.cursor, 1);
  const { rows } = await db.query<NodeColumns>(nodesSql(ROOTS_AFTER, PROPERTIES, IDENTIFIERS), [
    tenant,
    after,
    page.limit + 1,
  ]);
  const groups = [...Map.groupBy(rows, ({ root }) => root)].sort(([a], [b]) => a - b);
  return pageOf(
    groups,
    page.limit,
    ([root, nodes]) => profileOf(root, nodes),
    ([root]) => scopedCursorOf('profiles', [tenant], root),
  );
}

/** Rule 15. */
export async function readIdentity(db: Queryable, tenant: number, id: string): Promise<StoredIdentity | undefined> {
  const uuid = uuidOf(id);
  if (uuid === undefined) return undefined;
  const sql = nodesSql(ROOT_BY_ID, IDENTIFIERS, MERGES, REFUSALS, NAMED);
  const { rows } = await db.query<IdentityColumns>(sql, [tenant, uuid]);
  const [first] = rows;
  if (first === undefined) return undefined;
  const named = new Map(rows.flatMap((row) => row.named ?? []));
  const profile = nodesOfProfile(first.root, rows);
  const sorted = sortedAs(profile, rows);
  return storedIdentity(profile, {
    identifiers: identifiersOf(sorted),
    merges: mergesOf(sorted),
    refusals: oldestFirst(sorted.flatMap(({ refusals }) => (refusals ?? []).map(refusalRow))),
    publicId: (node) => named.get(node),
  });
}

function profilesOf(rows: readonly NodeColumns[]): StoredProfile[] {
  return [...Map.groupBy(rows, ({ root }) => root)].map(([root, nodes]) => profileOf(root, nodes));
}

function profileOf(root: NodeNumber, rows: readonly NodeColumns[]): StoredProfile {
  return profileWithIdentifiers(root, rows).profile;
}

export function profileWithIdentifiers(
  root: NodeNumber,
  rows: readonly NodeColumns[],
): { readonly profile: StoredProfile; readonly identifiers: IdentifierRow[] } {
  const nodes = nodesOfProfile(root, rows);
  const identifiers = identifiersOf(sortedAs(nodes, rows));
  return { profile: storedProfile(nodes, identifiers), identifiers };
}

export function nodesOfProfile(root: NodeNumber, rows: readonly NodeColumns[]): ProfileNodes {
  return profileNodes(root, rows.map(profileNode));
}

/** The rows in the order of the profile's nodes: oldest first. */
export function sortedAs<Row extends Pick<NodeColumns, 'no'>>({ nodes }: ProfileNodes, rows: readonly Row[]): Row[] {
  const places = new Map(nodes.map(({ node }, index) => [node, index]));
  return rows.toSorted((a, b) => (places.get(a.no) ?? 0) - (places.get(b.no) ?? 0));
}

function profileNode(row: NodeColumns): ProfileNode {
  const { no: node, id, events, first_seen: firstSeen, last_seen: lastSeen, properties = null } = row;
  const origin = { receivedAt: row.received_at, traceId: row.trace_id, userIndex: row.user_index };
  return { node, id, origin, events, firstSeen, lastSeen, properties };
}

/** Oldest first. */
export function identifiersOf(rows: readonly Pick<NodeColumns, 'no' | 'identifiers'>[]): IdentifierRow[] {
  const all = rows.flatMap(({ no: node, identifiers }) =>
    (identifiers ?? []).map(([type, value, raw, receivedAt, traceId, userIndex]) => {
      return { type: identifierTypeOf(type), value, raw, node, origin: { receivedAt, traceId, userIndex } };
    }),
  );
  return oldestFirst(all);
}

/** Oldest first. */
export function mergesOf(rows: readonly Pick<IdentityColumns, 'no' | 'merges'>[]): MergeRow[] {
  const all = rows.flatMap(({ no: nodeA, merges }) =>
    (merges ?? []).map(([no, nodeB, from, into, viaType, value, receivedAt, traceId, userIndex]): MergeRow => {
      const via = { type: identifierTypeOf(viaType), value };
      return { no, nodes: [nodeA, nodeB], from, into, via, origin: { receivedAt, traceId, userIndex } };
    }),
  );
  return oldestFirst(all);
}

function refusalRow(cells: RefusalCells): RefusalRow {
  const [type, raw, reason, lastAt, count, receivedAt, traceId, userIndex] = cells;
  return { type: identifierTypeOf(type), raw, reason, origin: { receivedAt, traceId, userIndex }, lastAt, count };
}
