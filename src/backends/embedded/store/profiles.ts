/**
 * Reads the rows from which views/profile.ts builds profiles and explains why they are one person. A profile is a
 * root and all nodes aliased to it (at most 100).
 *
 * A search (views/people-search.ts) goes through the blocks of node numbers in which the tenant has nodes (`node_blocks`),
 * newest first; a block is one read transaction of about a millisecond, so that other queries run in between. Candidates
 * are narrowed down by the properties in any run (profile-runs.ts), without combining them, and by identifiers in
 * SQL.
 */

import { decodeUtf8 } from '../../../json/utf8.ts';
import { IDENTIFIER_TYPES, type IdentifierType, type NodeNumber, type Origin } from '../../../model.ts';
import type { Page, PageRequest, PeopleQuery, StoredIdentity, StoredPerson, StoredProfile } from '../../../store.ts';
import { matchOf, type RoughFilter, type Step } from '../../../views/people-search.ts';
import {
  type IdentifierRow,
  identifierTypeOf,
  type MergeRow,
  NAMED_BYTES_MAX,
  oldestFirst,
  type ProfileNode,
  type ProfileNodes,
  profileNodes,
  type RefusalRow,
  storedIdentity,
  storedPerson,
  storedProfile,
} from '../../../views/profile.ts';
import { findState, type NodeState, PROFILE_RUNS } from './profile-runs.ts';
import type { Entry } from '../sorted-runs/entries.ts';
import { idBytes, type StoreConnection } from './connection.ts';
import { NODES_PER_BLOCK } from './schema.ts';
import { scopedCursorOf, scopedNumbersOf, pageOf } from '../../../views/cursor.ts';
import { findOwner, MATCH_KEYS, runKeyOf } from './match-keys.ts';
import { uuidText } from '../uuids.ts';

const ORIGIN = 'received_at AS "receivedAt", trace_id AS "traceId", user_index AS "userIndex"';

interface OriginColumns {
  readonly receivedAt: number;
  readonly traceId: Uint8Array;
  readonly userIndex: number;
}

export function nodeById(store: StoreConnection, tenant: number, id: string): NodeNumber | undefined {
  const bytes = idBytes(id);
  if (bytes === undefined) return undefined;
  return store.get<{ no: NodeNumber }>('SELECT no FROM nodes WHERE id = ? AND tenant = ?', bytes, tenant)?.no;
}

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
  const key = runKeyOf(store.hashOf, tenant, { type, value: normalised });
  const owner = findOwner(store.runs(MATCH_KEYS), key);
  if (owner === undefined) return undefined;
  // Found by its hash; here the text can be compared too, since the node's page is read anyway.
  const row = store.get<{ node: NodeNumber }>(
    'SELECT node FROM identifiers WHERE node = ? AND type = ? AND value = ? AND tenant = ?',
    owner,
    IDENTIFIER_TYPES.indexOf(type),
    normalised,
    tenant,
  );
  return row && nodesOf(store, row.node);
}

type ReadState = (node: NodeNumber) => NodeState | undefined;

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

const IS_ROOT = 'NOT EXISTS (SELECT 1 FROM aliases WHERE aliases.node = nodes.no)';

/** In the order of the roots' numbers, which is the order of creation. */
export function listProfiles(store: StoreConnection, tenant: number, page: PageRequest): Page<StoredProfile> {
  const [after = 0] = page.cursor === null ? [] : scopedNumbersOf('profiles', [tenant], page.cursor, 1);
  const roots = store.all<{ no: NodeNumber }>(
    `SELECT no FROM nodes WHERE no > ? AND tenant = ? AND ${IS_ROOT} ORDER BY no LIMIT ?`,
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

/** Longer properties are not searched: the node is a candidate. */
const COMPARED_BYTES_MAX = 65_536;

/** Searches one block, or part of it when there is no more room or time. */
export function searchBlock(
  store: StoreConnection,
  tenant: number,
  query: Pick<PeopleQuery, 'text' | 'property'>,
  filter: RoughFilter | null,
  { before, room, until }: { readonly before: NodeNumber; readonly room: number; readonly until: number },
): Step {
  const block = store.get<{ block: number }>(
    'SELECT block FROM node_blocks WHERE tenant = ? AND block <= ? ORDER BY block DESC LIMIT 1',
    tenant,
    Math.floor((before - 1) / NODES_PER_BLOCK),
  )?.block;
  if (block === undefined) return { found: [], end: null };
  const range = { from: block * NODES_PER_BLOCK, to: Math.min(before, (block + 1) * NODES_PER_BLOCK) };
  const numbers = filter === null ? rootsIn(store, tenant, range) : candidatesIn(store, tenant, range, filter);
  const found: Step['found'][number][] = [];
  for (const no of numbers) {
    const nodes = nodesOf(store, no);
    const identifiers = identifiersOf(store, nodes.nodes);
    const profile = storedProfile(nodes, identifiers);
    const matched = matchOf({ no, profile, identifiers }, query);
    if (matched !== null) found.push({ no, matched, profile });
    if (found.length >= room || performance.now() >= until) return { found, end: no };
  }
  return { found, end: range.from };
}

interface Range {
  readonly from: NodeNumber;
  /** Exclusive. */
  readonly to: NodeNumber;
}

function rootsIn(store: StoreConnection, tenant: number, { from, to }: Range): NodeNumber[] {
  const rows = store.all<{ no: NodeNumber }>(
    `SELECT no FROM nodes WHERE no >= ? AND no < ? AND tenant = ? AND ${IS_ROOT} ORDER BY no DESC`,
    from,
    to,
    tenant,
  );
  return rows.map(({ no }) => no);
}

/** ?1 and ?2 are the range of roots, ?3 the tenant; ?4 and ?5 are patterns. */
const IDENTIFIER_MATCHES = `(identifiers.value LIKE ?4 ESCAPE '\\' OR identifiers.raw LIKE ?4 ESCAPE '\\'
  OR (identifiers.type = 2 AND identifiers.value LIKE ?5 ESCAPE '\\'))`;
const BY_IDENTIFIER = `
  SELECT node AS no FROM identifiers WHERE node >= ?1 AND node < ?2 AND tenant = ?3 AND ${IDENTIFIER_MATCHES}
  UNION
  SELECT root FROM aliases JOIN identifiers ON identifiers.node = aliases.node
  WHERE root >= ?1 AND root < ?2 AND tenant = ?3 AND ${IDENTIFIER_MATCHES}`;

/** Roots only, newest first. */
function candidatesIn(store: StoreConnection, tenant: number, range: Range, filter: RoughFilter): NodeNumber[] {
  const { from, to } = range;
  const { identifier, phone, mayMatch } = filter;
  const numbers = new Set<NodeNumber>();
  const isCandidate = ({ bytes }: Entry): boolean =>
    bytes.length > COMPARED_BYTES_MAX || (bytes.length > 0 && mayMatch(decodeUtf8(bytes)));
  for (const { no } of store.runs(PROFILE_RUNS).listRuns()) {
    for (const entry of store.runs(PROFILE_RUNS).ascending(no, [from], [to])) {
      const [node = 0] = entry.key;
      if (!numbers.has(node) && isCandidate(entry)) numbers.add(node);
    }
  }
  const merged = store.all<{ node: NodeNumber; root: NodeNumber }>(
    'SELECT node, root FROM aliases WHERE root >= ? AND root < ?',
    from,
    to,
  );
  for (const { node, root } of merged) {
    if (!numbers.has(root) && store.runs(PROFILE_RUNS).entriesByRun([node]).some(isCandidate)) numbers.add(root);
  }
  if (identifier !== null) {
    const rows = store.all<{ no: NodeNumber }>(BY_IDENTIFIER, from, to, tenant, identifier, phone);
    for (const { no } of rows) numbers.add(no);
  }
  if (numbers.size === 0) return [];
  return rootsIn(store, tenant, range).filter((no) => numbers.has(no));
}

/** By the requested id; for names, so without properties that are too long. */
export function readPeople(store: StoreConnection, tenant: number, ids: readonly string[]): Map<string, StoredPerson> {
  const people = new Map<NodeNumber, StoredPerson>();
  const found = new Map<string, StoredPerson>();
  for (const id of ids) {
    const no = nodeById(store, tenant, id);
    if (no === undefined) continue;
    const root = rootOf(store, no);
    const person = people.getOrInsertComputed(root, () => {
      const nodes = nodesOf(store, root, (node) => findState(store.runs(PROFILE_RUNS), node, NAMED_BYTES_MAX));
      return storedPerson(nodes, identifiersOf(store, nodes.nodes));
    });
    found.set(id, person);
  }
  return found;
}
