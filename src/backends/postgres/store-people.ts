/**
 * Lists of people and their names. A search (views/people-search.ts) goes through the roots of a tenant by number,
 * newest first, some hundreds or thousands per statement: the server narrows them down to candidates, and only these
 * are read. As in the embedded store, prefixes of names and identifiers have no index.
 */

import type { NodeNumber } from '../../model.ts';
import type { PeopleQuery, StoredPerson } from '../../store.ts';
import { type Candidate, matchOf, type RoughFilter, type Step } from '../../views/people-search.ts';
import { NAMED_BYTES_MAX, storedPerson, storedProfile } from '../../views/profile.ts';
import { uuidOf } from '../../views/uuid.ts';
import { chunksOf } from '../sql/steps.ts';
import type { Queryable } from './pool.ts';
import { CANDIDATES_BY_NUMBER, identifiersOf, nodesByRoot, PEOPLE_BY_ID, profileNodesOf } from './store-profiles.ts';

const ROWS_FIRST = 1_024;
const ROWS_MAX = 16_384;
const CANDIDATES_PER_READ = 100;
const STEP_MS = 50;

/** $1 tenant, $2 before, $3 how many to scan. */
const LOOKED_AT = `
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
  WITH s AS MATERIALIZED (${LOOKED_AT})
  SELECT count(*) AS looked_at, min(no) AS lowest, json_agg(json_build_array(no, NULL) ORDER BY no DESC) AS candidates
  FROM s`;

/**
 * With the properties of a root where only those make it a candidate, and they are short: these are checked more
 * exactly.
 */
const CANDIDATES_SQL = `
  WITH s AS MATERIALIZED (${LOOKED_AT}),
  judged AS MATERIALIZED (
    SELECT no, properties, ${propertiesMatch('s')} AS by_properties, ${identifiersMatch('s')} OR EXISTS (
      SELECT 1 FROM nodes AS m WHERE m.root = s.no AND (${propertiesMatch('m')} OR ${identifiersMatch('m')})) AS by_others
    FROM s
  )
  SELECT count(*) AS looked_at, min(no) AS lowest,
    json_agg(json_build_array(no, CASE WHEN NOT by_others AND octet_length(properties) <= ${NAMED_BYTES_MAX} THEN properties END)
      ORDER BY no DESC) FILTER (WHERE by_properties OR by_others) AS candidates
  FROM judged`;

interface Candidates {
  readonly looked_at: number;
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
    const { looked_at: lookedAt, lowest, candidates } = await findCandidates(db, tenant, before, rows, filter);
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
    return { found, end: lookedAt < rows ? null : lowest };
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
  const [row] = (await db.query<Candidates>(filter === null ? EVERYONE_SQL : CANDIDATES_SQL, values)).rows;
  if (row === undefined) throw new Error('a sum without rows');
  return row;
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
