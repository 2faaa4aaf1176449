/**
 * Lists of people, and what to call them. A search (stored/people-search.ts) goes through the blocks of node numbers in
 * which the tenant has nodes (`node_blocks`), newest first; a block is one read transaction of about a millisecond, so
 * that other questions get their turn in between. Candidates are narrowed down in SQL; what was told of a node and is not in its row yet is
 * looked at here.
 */

import type { NodeNumber } from '../../model.ts';
import type { PeopleQuery, StoredPerson } from '../../store.ts';
import { type Candidate, matchOf, type RoughFilter, type Step } from '../../stored/people-search.ts';
import { storedPerson } from '../../stored/person.ts';
import type { StoreConnection } from './store-connection.ts';
import { candidateOf, idsToNodes, personNodes } from './store-profiles.ts';
import { NODES_PER_BLOCK } from './store-schema.ts';
import { toldBetween } from './told-runs.ts';

/** What is known of a node and is longer is not compared in SQL, where nothing could end it: the node is a candidate. */
const COMPARED_BYTES_MAX = 65_536;

/** Looks at one block, or at a part of it when there is no more room or time. */
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
  const numbers = filter === null ? survivorsIn(store, tenant, range) : candidatesIn(store, tenant, range, filter);
  const found: Step['found'][number][] = [];
  for (const no of numbers) {
    const candidate: Candidate = candidateOf(store, no);
    const matched = matchOf(candidate, query);
    if (matched !== null) found.push({ no, matched, profile: candidate.profile });
    if (found.length >= room || performance.now() >= until) return { found, end: no };
  }
  return { found, end: range.from };
}

interface Range {
  readonly from: NodeNumber;
  /** Exclusive. */
  readonly to: NodeNumber;
}

const IS_SURVIVOR = 'NOT EXISTS (SELECT 1 FROM aliases WHERE aliases.node = nodes.no)';

function survivorsIn(store: StoreConnection, tenant: number, { from, to }: Range): NodeNumber[] {
  const rows = store.all<{ no: NodeNumber }>(
    `SELECT no FROM nodes WHERE no >= ? AND no < ? AND tenant = ? AND ${IS_SURVIVOR} ORDER BY no DESC`,
    from,
    to,
    tenant,
  );
  return rows.map(({ no }) => no);
}

/** ?1 and ?2 are the range of survivors, ?3 the tenant; patterns are ?4 and ?5. */
const IS_LONG = `octet_length(nodes.known) > ${COMPARED_BYTES_MAX}`;
const KNOWN_MATCHES = `(${IS_LONG} OR (nodes.known LIKE ?4 ESCAPE '\\' AND nodes.known LIKE ?5 ESCAPE '\\'))`;
const IDENTIFIER_MATCHES = `(identifiers.value LIKE ?4 ESCAPE '\\' OR identifiers.raw LIKE ?4 ESCAPE '\\'
  OR (identifiers.type = 2 AND identifiers.value LIKE ?5 ESCAPE '\\'))`;
const BY_KNOWN = `
  SELECT no, iif(${IS_LONG}, NULL, known) AS known FROM nodes
  WHERE no >= ?1 AND no < ?2 AND tenant = ?3 AND ${KNOWN_MATCHES}
  UNION ALL
  SELECT root, iif(${IS_LONG}, NULL, known) FROM aliases JOIN nodes ON nodes.no = aliases.node
  WHERE root >= ?1 AND root < ?2 AND tenant = ?3 AND ${KNOWN_MATCHES}`;
const BY_IDENTIFIER = `
  SELECT node AS no FROM identifiers WHERE node >= ?1 AND node < ?2 AND tenant = ?3 AND ${IDENTIFIER_MATCHES}
  UNION
  SELECT root FROM aliases JOIN identifiers ON identifiers.node = aliases.node
  WHERE root >= ?1 AND root < ?2 AND tenant = ?3 AND ${IDENTIFIER_MATCHES}`;

/** Survivors only, newest first. */
function candidatesIn(store: StoreConnection, tenant: number, range: Range, filter: RoughFilter): NodeNumber[] {
  const { from, to } = range;
  const { identifier, phone, known, mayCount } = filter;
  const numbers = new Set<NodeNumber>();
  for (const row of store.iterate<{ no: NodeNumber; known: string | null }>(BY_KNOWN, from, to, tenant, ...known)) {
    // What is too long to be compared may count.
    if (row.known === null || mayCount(row.known)) numbers.add(row.no);
  }
  if (identifier !== null) {
    const rows = store.all<{ no: NodeNumber }>(BY_IDENTIFIER, from, to, tenant, identifier, phone);
    for (const { no } of rows) numbers.add(no);
  }
  const told = toldBetween(store, from, to, mayCount);
  if (told !== null) {
    for (const no of told) numbers.add(no);
    // What is told of those that were merged into a survivor lies elsewhere.
    const sql = 'SELECT DISTINCT root AS no FROM aliases WHERE root >= ? AND root < ?';
    for (const { no } of store.all<{ no: NodeNumber }>(sql, from, to)) numbers.add(no);
  }
  if (numbers.size === 0) return [];
  return survivorsIn(store, tenant, range).filter((no) => numbers.has(no));
}

/** By the id that was asked for. */
export function readPeople(store: StoreConnection, tenant: number, ids: readonly string[]): Map<string, StoredPerson> {
  const people = new Map<NodeNumber, StoredPerson>();
  const found = new Map<string, StoredPerson>();
  for (const [id, root] of idsToNodes(store, tenant, ids)) {
    let person = people.get(root);
    if (person === undefined) {
      person = storedPerson(...personNodes(store, root));
      people.set(root, person);
    }
    found.set(id, person);
  }
  return found;
}
