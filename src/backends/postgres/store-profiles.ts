/**
 * Reads the rows from which views/profile.ts builds profiles, names people and explains why they are one person. Every
 * query is one statement, whatever the number of profiles and nodes, so nodes and identifiers are consistent. Rows have
 * the names of views/profile.ts; the identifiers, merges and refusals of a node come with it, as JSON.
 *
 * A search (views/people-search.ts) goes through the roots of a tenant by number, newest first, some hundreds or
 * thousands per statement: the server narrows them down to candidates, and only these are read. As in the embedded
 * store, prefixes of names and identifiers have no index.
 */

import { IDENTIFIER_TYPES, type IdentifierType, type NodeNumber } from '../../model.ts';
import type { Page, PageRequest, PeopleQuery, StoredIdentity, StoredPerson, StoredProfile } from '../../store.ts';
import { scopedCursorOf, scopedNumbersOf, pageOf } from '../../views/cursor.ts';
import { type Candidate, matchOf, type RoughFilter, type Step } from '../../views/people-search.ts';
import {
  NAMED_BYTES_MAX,
  type IdentifierRow,
  type MergeRow,
  oldestFirst,
  type ProfileNode,
  type ProfileNodes,
  profileNodes,
  type RefusalRow,
  storedIdentity,
  storedPerson,
  storedProfile,
} from '../../views/profile.ts';
import { uuidOf } from '../../views/uuid.ts';
import { chunksOf } from '../sql/steps.ts';
import { type Queryable, rowOf } from './pool.ts';

/** PostgreSQL cannot store U+0000 and no accepted text contains it, so a text with one matches nothing. */
export function isPostgresText(text: string): boolean {
  return !text.includes('\0');
}

export interface NodeRow extends ProfileNode {
  readonly root: NodeNumber;
  /** Only where they are selected. */
  readonly identifiers?: readonly IdentifierRow[] | null;
  readonly merges?: readonly MergeRow[] | null;
  readonly refusals?: readonly RefusalRow[] | null;
  /** Public ids of the nodes that merges name, as far as they exist. */
  readonly named?: readonly (readonly [NodeNumber, string])[] | null;
}

const origin = (receivedAt: string, traceId: string, userIndex: string): string =>
  `json_build_object('receivedAt', ${receivedAt}, 'traceId', ${traceId}, 'userIndex', ${userIndex})`;
const originOf = (row: string): string => origin(`${row}.received_at`, `${row}.trace_id`, `${row}.user_index`);
const typeOf = (column: string): string => `('{${IDENTIFIER_TYPES.join(',')}}'::text[])[${column} + 1]`;

/** Without the properties, which may be megabytes. */
export const NODE_COLUMNS = `n.no AS node, coalesce(n.root, n.no) AS root, n.id, ${originOf('n')} AS origin, n.events,
  n.first_seen AS "firstSeen", n.last_seen AS "lastSeen"`;

const PROPERTIES = 'n.properties';

/** In the order of the SQLite store: by type and value. */
export const IDENTIFIERS = `
  (SELECT json_agg(json_build_object('type', ${typeOf('i.type')}, 'value', i.value, 'raw', i.raw, 'node', i.node, 'origin',
            ${origin('coalesce(i.received_at, n.received_at)', 'coalesce(i.trace_id, n.trace_id)', 'coalesce(i.user_index, n.user_index)')}
          ) ORDER BY i.type, i.value)
   FROM identifiers AS i WHERE i.node = n.no) AS identifiers`;

export const MERGES = `
  (SELECT json_agg(json_build_object('no', m.no, 'nodes', json_build_array(m.node_a, m.node_b), 'from', m.from_node,
            'into', m.into_node, 'via', json_build_object('type', ${typeOf('m.via_type')}, 'value', m.via_value),
            'origin', ${originOf('m')}) ORDER BY m.no)
   FROM merges AS m WHERE m.node_a = n.no) AS merges`;

const REFUSALS = `
  (SELECT json_agg(json_build_object('type', ${typeOf('r.type')}, 'raw', r.raw, 'reason', r.reason, 'lastAt', r.last_at,
            'count', r.count, 'origin', ${originOf('r')}) ORDER BY r.type, r.value, r.reason)
   FROM refusals AS r WHERE r.node = n.no) AS refusals`;

const NAMED = `
  (SELECT json_agg(json_build_array(o.no, o.id))
   FROM merges AS m JOIN nodes AS o ON o.no IN (m.from_node, m.into_node, m.node_a, m.node_b)
   WHERE m.node_a = n.no) AS named`;

/** All nodes of the profiles whose roots `roots` (a query) returns as `no`. */
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

/** $1 the numbers of roots. */
const CANDIDATES_BY_NUMBER = nodesSql(ROOTS_BY_NUMBER, PROPERTIES, IDENTIFIERS);
/** The same, without identifiers. */
export const NODES_BY_NUMBER = nodesSql(ROOTS_BY_NUMBER, PROPERTIES);
/** $1 the tenant, $2 public ids. For names: without properties that are too long. */
const PEOPLE_BY_ID = nodesSql(
  ROOTS_BY_ID,
  `CASE WHEN octet_length(n.properties) <= ${NAMED_BYTES_MAX} THEN n.properties END AS properties`,
  IDENTIFIERS,
);

/** The nodes of each profile, by its root; oldest first. */
async function nodesByRoot(
  db: Queryable,
  sql: string,
  values: readonly unknown[],
): Promise<Map<NodeNumber, NodeRow[]>> {
  const { rows } = await db.query<NodeRow>(sql, values);
  return Map.groupBy(oldestFirst(rows), ({ root }) => root);
}

/** The nodes of a profile, by the public id of any of them, oldest first; undefined for an unknown one. */
export async function findNodes(
  db: Queryable,
  tenant: number,
  id: string,
  ...columns: readonly string[]
): Promise<NodeRow[] | undefined> {
  const uuid = uuidOf(id);
  if (uuid === undefined) return undefined;
  const [nodes] = (await nodesByRoot(db, nodesSql(ROOT_BY_ID, ...columns), [tenant, uuid])).values();
  return nodes;
}

export async function readProfile(db: Queryable, tenant: number, id: string): Promise<StoredProfile | undefined> {
  const nodes = await findNodes(db, tenant, id, PROPERTIES, IDENTIFIERS);
  return nodes && profileOf(nodes);
}

export async function findProfile(
  db: Queryable,
  tenant: number,
  type: IdentifierType,
  normalised: string,
): Promise<StoredProfile | undefined> {
  if (!isPostgresText(normalised)) return undefined;
  const values = [tenant, IDENTIFIER_TYPES.indexOf(type), normalised];
  const [nodes] = (await nodesByRoot(db, nodesSql(ROOT_BY_KEY, PROPERTIES, IDENTIFIERS), values)).values();
  return nodes && profileOf(nodes);
}

/** By the roots' numbers: for one processor that is the order of creation. */
export async function listProfiles(db: Queryable, tenant: number, page: PageRequest): Promise<Page<StoredProfile>> {
  const [after = 0] = page.cursor === null ? [] : scopedNumbersOf('profiles', [tenant], page.cursor, 1);
  const sql = nodesSql(ROOTS_AFTER, PROPERTIES, IDENTIFIERS);
  const byRoot = await nodesByRoot(db, sql, [tenant, after, page.limit + 1]);
  return pageOf(
    [...byRoot].sort(([a], [b]) => a - b),
    page.limit,
    ([, nodes]) => profileOf(nodes),
    ([root]) => scopedCursorOf('profiles', [tenant], root),
  );
}

/** Rule 15. */
export async function readIdentity(db: Queryable, tenant: number, id: string): Promise<StoredIdentity | undefined> {
  const rows = await findNodes(db, tenant, id, IDENTIFIERS, MERGES, REFUSALS, NAMED);
  if (rows === undefined) return undefined;
  const named = new Map(rows.flatMap((row) => row.named ?? []));
  return storedIdentity(profileNodesOf(rows), {
    identifiers: identifiersOf(rows),
    merges: mergesOf(rows),
    refusals: oldestFirst(rows.flatMap(({ refusals }) => refusals ?? [])),
    publicId: (node) => named.get(node),
  });
}

/** Of one profile. */
export function profileNodesOf(rows: readonly NodeRow[]): ProfileNodes {
  return profileNodes(rows[0]?.root ?? 0, rows);
}

function profileOf(rows: readonly NodeRow[]): StoredProfile {
  return storedProfile(profileNodesOf(rows), identifiersOf(rows));
}

/** Oldest first, as the rows are. */
export function identifiersOf(rows: readonly NodeRow[]): IdentifierRow[] {
  return oldestFirst(rows.flatMap(({ identifiers }) => identifiers ?? []));
}

/** Oldest first, as the rows are. */
export function mergesOf(rows: readonly NodeRow[]): MergeRow[] {
  return oldestFirst(rows.flatMap(({ merges }) => merges ?? []));
}

const ROWS_FIRST = 1_024;
const ROWS_MAX = 16_384;
const CANDIDATES_PER_READ = 100;
const STEP_MS = 50;

/** $1 tenant, $2 before, $3 how many to scan. */
const SCANNED = `
  SELECT no, properties FROM nodes WHERE tenant = $1 AND no < $2 AND root IS NULL ORDER BY no DESC LIMIT $3`;

/** $4 and $5: patterns of identifiers and of phone numbers; $6 and $7 of properties. */
const lower = (text: string): string => `lower(${text} COLLATE "C")`;
const propertiesMatch = (node: string): string =>
  `(${lower(`${node}.properties`)} LIKE ${lower('$6::text')} AND ${lower(`${node}.properties`)} LIKE ${lower('$7::text')})`;
const identifiersMatch = (node: string): string => `
  EXISTS (SELECT 1 FROM identifiers AS i WHERE i.node = ${node}.no AND (
    ${lower('i.value')} LIKE ${lower('$4::text')} OR ${lower('i.raw')} LIKE ${lower('$4::text')}
    OR (i.type = 2 AND i.value LIKE $5::text)))`;

const EVERYONE_SQL = `
  WITH s AS MATERIALIZED (${SCANNED})
  SELECT count(*) AS scanned, min(no) AS lowest, json_agg(json_build_array(no, NULL) ORDER BY no DESC) AS candidates
  FROM s`;

/**
 * With the properties of a root where only those make it a candidate, and they are short: these are checked more
 * exactly.
 */
const CANDIDATES_SQL = `
  WITH s AS MATERIALIZED (${SCANNED}),
  compared AS MATERIALIZED (
    SELECT no, properties, ${propertiesMatch('s')} AS by_properties, ${identifiersMatch('s')} OR EXISTS (
      SELECT 1 FROM nodes AS m WHERE m.root = s.no AND (${propertiesMatch('m')} OR ${identifiersMatch('m')})) AS by_others
    FROM s
  )
  SELECT count(*) AS scanned, min(no) AS lowest,
    json_agg(json_build_array(no, CASE WHEN NOT by_others AND octet_length(properties) <= ${NAMED_BYTES_MAX} THEN properties END)
      ORDER BY no DESC) FILTER (WHERE by_properties OR by_others) AS candidates
  FROM compared`;

interface Candidates {
  readonly scanned: number;
  readonly lowest: NodeNumber | null;
  readonly candidates: readonly (readonly [NodeNumber, properties: string | null])[] | null;
}

/** The steps of one search, each of which scans more than the last, unless that took long. */
export function peopleSteps(
  db: Queryable,
  tenant: number,
  query: Pick<PeopleQuery, 'text' | 'property'>,
  filter: RoughFilter | null,
): (before: NodeNumber, room: number, until: number) => Promise<Step> {
  let nextRows = ROWS_FIRST;
  return async (before, room, until) => {
    const rows = filter === null ? Math.min(room, ROWS_MAX) : nextRows;
    const start = performance.now();
    const { scanned, lowest, candidates } = await findCandidates(db, tenant, before, rows, filter);
    const isQuick = performance.now() - start < STEP_MS;
    nextRows = isQuick ? Math.min(ROWS_MAX, rows * 2) : Math.max(1, Math.floor(rows / 2));
    if (lowest === null) return { found: [], end: null };
    const found: Step['found'][number][] = [];
    const mayMatch = filter?.mayMatch ?? (() => true);
    const numbers = (candidates ?? []).flatMap(([no, properties]) =>
      properties === null || mayMatch(properties) ? [no] : [],
    );
    for (const some of chunksOf(numbers, CANDIDATES_PER_READ)) {
      for (const candidate of await readCandidates(db, some)) {
        const matched = matchOf(candidate, query);
        if (matched !== null) found.push({ no: candidate.no, matched, profile: candidate.profile });
        if (found.length >= room) return { found, end: candidate.no };
      }
      if (performance.now() >= until) return { found, end: some.at(-1) ?? lowest };
    }
    return { found, end: scanned < rows ? null : lowest };
  };
}

async function findCandidates(
  db: Queryable,
  tenant: number,
  before: NodeNumber,
  rows: number,
  filter: RoughFilter | null,
): Promise<Candidates> {
  const values: unknown[] = [tenant, before, rows];
  if (filter !== null) values.push(filter.identifier, filter.phone, ...filter.properties);
  return rowOf(await db.query<Candidates>(filter === null ? EVERYONE_SQL : CANDIDATES_SQL, values));
}

/** Newest first, without nodes that are no longer roots. */
async function readCandidates(db: Queryable, numbers: readonly NodeNumber[]): Promise<Candidate[]> {
  const byRoot = await nodesByRoot(db, CANDIDATES_BY_NUMBER, [numbers]);
  return [...byRoot]
    .sort(([a], [b]) => b - a)
    .map(([no, rows]) => {
      const identifiers = identifiersOf(rows);
      return { no, profile: storedProfile(profileNodesOf(rows), identifiers), identifiers };
    });
}

/** By the requested id. */
export async function readPeople(
  db: Queryable,
  tenant: number,
  ids: readonly string[],
): Promise<Map<string, StoredPerson>> {
  const uuids = ids.flatMap((id) => uuidOf(id) ?? []);
  if (uuids.length === 0) return new Map();
  const byRoot = await nodesByRoot(db, PEOPLE_BY_ID, [tenant, uuids]);
  const people = new Map<string, StoredPerson>();
  for (const rows of byRoot.values()) {
    const person = storedPerson(profileNodesOf(rows), identifiersOf(rows));
    for (const { id } of rows) people.set(id, person);
  }
  return new Map(
    ids.flatMap((id): [string, StoredPerson][] => {
      const person = people.get(id.toLowerCase());
      return person === undefined ? [] : [[id, person]];
    }),
  );
}
