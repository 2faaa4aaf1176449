/**
 * Lists of people and their names. A search (views/people-search.ts) goes through the blocks of node numbers in which
 * the tenant has nodes (`node_blocks`), newest first; a block is one read transaction of about a millisecond, so that
 * other queries run in between. Candidates are narrowed down by the properties in any run (store/profile-runs.ts),
 * without combining them, and by identifiers in SQL.
 */

import { decodeUtf8 } from '../../../json/utf8.ts';
import type { NodeNumber } from '../../../model.ts';
import type { PeopleQuery, StoredPerson } from '../../../store.ts';
import { matchOf, type RoughFilter, type Step } from '../../../views/people-search.ts';
import { NAMED_BYTES_MAX, storedPerson, storedProfile } from '../../../views/profile.ts';
import { findState, PROFILE_RUNS } from './profile-runs.ts';
import type { Entry } from '../sorted-runs/entries.ts';
import type { StoreConnection } from './connection.ts';
import { identifiersOf, nodeById, nodesOf, rootOf } from './profiles.ts';
import { NODES_PER_BLOCK } from './schema.ts';

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

const IS_ROOT = 'NOT EXISTS (SELECT 1 FROM aliases WHERE aliases.node = nodes.no)';

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
    if (!numbers.has(root) && store.runs(PROFILE_RUNS).parts([node]).some(isCandidate)) numbers.add(root);
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
    let person = people.get(root);
    if (person === undefined) {
      const nodes = nodesOf(store, root, (node) => findState(store.runs(PROFILE_RUNS), node, NAMED_BYTES_MAX));
      person = storedPerson(nodes, identifiersOf(store, nodes.nodes));
      people.set(root, person);
    }
    found.set(id, person);
  }
  return found;
}
