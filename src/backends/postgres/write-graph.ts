/**
 * Reads and locks the part of the identity graph that a batch needs, in a fixed number of statements. First it reads the
 * nodes and roots of all match keys, except of cached people (person-cache.ts). Then it locks the rows of nodes that will
 * be written, in the order of their numbers: for a user whose keys all have nodes of one profile, the node of the
 * strongest, which gets its events; for any other user (a candidate: it may link or merge), all nodes of all profiles
 * that it names. Every change of a profile requires the lock on its root, so what is read of candidates' profiles under
 * the locks stays true until the end of the transaction. A change between the first read and the locks is a conflict.
 */

import type { ProfileState, Snapshot } from '../../identity/graph.ts';
import { resolvedNodeOf } from '../../identity/resolve.ts';
import { IDENTIFIER_TYPES, type IdentifierType, type NodeNumber } from '../../model.ts';
import { type PersonKeys, type LookupRequest, StoreConflictError } from '../../store-writer.ts';
import type { Queryable } from './pool.ts';
import type { PersonCache } from './person-cache.ts';

/** The properties of a node are read with its lock, except for the rare node with very many. */
const PROPERTIES_BYTES_READ_AT_ONCE = 16_384;

const FIND_KEYS = {
  name: 'store_find_keys',
  rowMode: 'array',
  text: `
    SELECT q.ordinal, i.node, n.root
    FROM unnest($1::int4[], $2::int2[], $3::text[]) WITH ORDINALITY AS q (tenant, type, value, ordinal)
    JOIN identifiers i ON i.tenant = q.tenant AND i.type = q.type AND i.value = q.value
    JOIN nodes n ON n.no = i.node`,
} as const;

const LOCKED_COLUMNS = `no, root, octet_length(properties) AS bytes,
  CASE WHEN octet_length(properties) <= ${PROPERTIES_BYTES_READ_AT_ONCE} THEN properties END AS properties`;

const LOCK_NODES = {
  name: 'store_lock_nodes',
  text: `SELECT ${LOCKED_COLUMNS} FROM nodes WHERE no = ANY ($1::int8[]) ORDER BY no FOR NO KEY UPDATE`,
};

const LOCK_PROFILES = {
  name: 'store_lock_profiles',
  text: `
    SELECT ${LOCKED_COLUMNS} FROM nodes WHERE no = ANY ($1::int8[]) OR root = ANY ($2::int8[])
    ORDER BY no FOR NO KEY UPDATE`,
};

/** Types are indexes in IDENTIFIER_TYPES. */
const READ_PROFILES = {
  name: 'store_read_profiles',
  text: `
    WITH members AS (
      SELECT no AS root, no, received_at, trace_id, user_index FROM nodes WHERE no = ANY ($1::int8[])
      UNION ALL
      SELECT root, no, received_at, trace_id, user_index FROM nodes WHERE root = ANY ($1::int8[])
    )
    SELECT members.*, keys.*, separated.cannot_link AS "cannotLink"
    FROM members
    CROSS JOIN LATERAL (
      SELECT max(value) FILTER (WHERE type = 0) AS user_id, count(*) FILTER (WHERE type = 1) AS emails,
        count(*) FILTER (WHERE type = 2) AS phone_numbers, count(*) FILTER (WHERE type = 3) AS anon_ids
      FROM identifiers WHERE node = members.no
    ) AS keys
    CROSS JOIN LATERAL (
      SELECT array_agg(node_b ORDER BY node_b) AS cannot_link FROM cannot_link WHERE node_a = members.no
    ) AS separated
    ORDER BY members.no`,
};

interface LockedRow {
  readonly no: number;
  readonly root: number | null;
  /** Size of `properties`, which is also null when it was too large to be read. */
  readonly bytes: number | null;
  readonly properties: string | null;
}

interface MemberRow {
  readonly root: number;
  readonly no: number;
  readonly received_at: number;
  readonly trace_id: string;
  readonly user_index: number;
  readonly user_id: string | null;
  readonly emails: number;
  readonly phone_numbers: number;
  readonly anon_ids: number;
  readonly cannotLink: readonly number[] | null;
}

/** A lookup, with the numbers of its tenant and of the first node that it may create. */
interface Lookup {
  readonly tenant: number;
  readonly request: LookupRequest;
  readonly nextNode: NodeNumber;
}

/** The properties of locked nodes; undefined where they were too large to be read at once. */
export type LockedNodes = Map<NodeNumber, string | null | undefined>;

/** A lookup without its cached users. */
interface UncachedLookup extends Lookup {
  readonly users: readonly PersonKeys[];
  /** Users with nothing to decide, and whether any of them came from the cache. */
  readonly resolved: Map<PersonKeys, NodeNumber>;
  readonly hasCached: boolean;
}

interface Graph {
  /** In the order of the lookups. */
  readonly found: readonly (UncachedLookup & { readonly snapshot: Snapshot })[];
  readonly locked: LockedNodes;
}

/** Nodes of match keys, by type and value. */
type KeyNodes = Readonly<Record<IdentifierType, Map<string, NodeNumber>>>;

export async function lookUpGraph(client: Queryable, lookups: readonly Lookup[], people: PersonCache): Promise<Graph> {
  const roots = new Map<NodeNumber, NodeNumber>();
  const toLock = new Set<NodeNumber>();
  const candidates = new Set<NodeNumber>();
  const uncached = lookups.map((one) => withoutCached(one, people, toLock));
  const cachedNodes = [...toLock];
  const keyNodes = await findKeys(client, uncached, roots);
  for (const [index, rest] of uncached.entries())
    findCandidates(rest, keyNodes[index] as KeyNodes, roots, toLock, candidates);
  const locked = await lock(client, toLock, candidates, roots);
  const missing = new Set(toLock.values().filter((node) => !locked.has(node)));
  if (missing.size > 0) {
    if (!cachedNodes.some((node) => missing.has(node))) throw new StoreConflictError('a profile was erased meanwhile');
    // Probably erased long ago. Without these, fewer are cached each time, so this ends.
    people.drop(missing);
    return lookUpGraph(client, lookups, people);
  }
  const profiles = await readProfiles(client, candidates);
  const found = uncached.map((rest, index) =>
    Object.assign(rest, { snapshot: snapshotOf(rest, keyNodes[index] as KeyNodes, roots, profiles) }),
  );
  return { found, locked };
}

/** The same for a prediction: without locks and cache, in a transaction that sees one snapshot. */
export async function readGraph(client: Queryable, lookup: Lookup): Promise<Snapshot> {
  const roots = new Map<NodeNumber, NodeNumber>();
  const candidates = new Set<NodeNumber>();
  const { users } = lookup.request;
  const rest: UncachedLookup = { ...lookup, users, resolved: new Map(), hasCached: false };
  const [nodes] = await findKeys(client, [rest], roots);
  findCandidates(rest, nodes as KeyNodes, roots, new Set(), candidates);
  const profiles = await readProfiles(client, candidates);
  return snapshotOf(rest, nodes as KeyNodes, roots, profiles);
}

function snapshotOf(
  { nextNode, resolved }: UncachedLookup,
  nodes: KeyNodes,
  roots: ReadonlyMap<NodeNumber, NodeNumber>,
  profiles: ReadonlyMap<NodeNumber, ProfileState>,
): Snapshot {
  return {
    nextNode,
    nodeOf: ({ type, value }) => nodes[type].get(value),
    resolvedNodeOf: (user) => resolved.get(user),
    rootOf: (node) => required(roots.get(node)),
    profileOf: (root) => required(profiles.get(root)),
  };
}

function withoutCached(lookup: Lookup, people: PersonCache, toLock: Set<NodeNumber>): UncachedLookup {
  const { tenant, request } = lookup;
  const resolved = new Map<PersonKeys, NodeNumber>();
  const users = request.users.filter((user) => {
    const node = people.nodeOf(tenant, user, request.receivedAtMin);
    if (node === undefined) return true;
    resolved.set(user, node);
    toLock.add(node);
    return false;
  });
  return { ...lookup, users, resolved, hasCached: resolved.size > 0 };
}

function required<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('a node was looked up that belongs to none of these users');
  return value;
}

async function findKeys(
  client: Queryable,
  uncached: readonly UncachedLookup[],
  roots: Map<NodeNumber, NodeNumber>,
): Promise<KeyNodes[]> {
  const tenants: number[] = [];
  const types: number[] = [];
  const values: string[] = [];
  const found: Map<string, NodeNumber>[] = [];
  const keyNodes = uncached.map(({ tenant, users }): KeyNodes => {
    const nodes = { user_id: new Map(), email: new Map(), phone_number: new Map(), anon_id: new Map() };
    const seen = IDENTIFIER_TYPES.map(() => new Set<string>());
    for (const { keys } of users) {
      for (const { type, value } of keys) {
        const typeIndex = IDENTIFIER_TYPES.indexOf(type);
        if (seen[typeIndex]?.has(value) === true) continue;
        seen[typeIndex]?.add(value);
        tenants.push(tenant);
        types.push(typeIndex);
        values.push(value);
        found.push(nodes[type]);
      }
    }
    return nodes;
  });
  if (values.length === 0) return keyNodes;
  const parameters = [tenants, types, values];
  const { rows } = await client.query<[ordinal: number, node: number, root: number | null]>(FIND_KEYS, parameters);
  for (const [ordinal, node, root] of rows) {
    found[ordinal - 1]?.set(values[ordinal - 1] as string, node);
    roots.set(node, root ?? node);
  }
  return keyNodes;
}

/**
 * Splits users into those with nothing to decide, added to `resolved`, and those that may link or merge: the roots of
 * the profiles that they name are added to `candidates`. Adds the nodes of both to `toLock`.
 */
function findCandidates(
  { users, resolved }: UncachedLookup,
  nodes: KeyNodes,
  roots: ReadonlyMap<NodeNumber, NodeNumber>,
  toLock: Set<NodeNumber>,
  candidates: Set<NodeNumber>,
): void {
  for (const user of users) {
    const { keys } = user;
    const node = resolvedNodeOf(
      keys,
      ({ type, value }) => nodes[type].get(value),
      (one) => required(roots.get(one)),
    );
    if (node !== undefined) {
      resolved.set(user, node);
      toLock.add(node);
      continue;
    }
    for (const { type, value } of keys) {
      const one = nodes[type].get(value);
      if (one === undefined) continue;
      const root = required(roots.get(one));
      toLock.add(one).add(root);
      candidates.add(root);
    }
  }
}

async function lock(
  client: Queryable,
  toLock: ReadonlySet<NodeNumber>,
  candidates: ReadonlySet<NodeNumber>,
  roots: Map<NodeNumber, NodeNumber>,
): Promise<LockedNodes> {
  const locked: LockedNodes = new Map();
  if (toLock.size === 0) return locked;
  const numbers = [...toLock];
  const { rows } =
    candidates.size === 0
      ? await client.query<LockedRow>(LOCK_NODES, [numbers])
      : await client.query<LockedRow>(LOCK_PROFILES, [numbers, [...candidates]]);
  for (const { no, root, bytes, properties: text } of rows) {
    locked.set(no, text === null && bytes !== null ? undefined : text);
    const before = roots.get(no);
    const isOfCandidate = candidates.has(no) || (before !== undefined && candidates.has(before));
    if (isOfCandidate && (root ?? no) !== (before ?? no)) throw new StoreConflictError('a profile changed meanwhile');
    roots.set(no, before ?? root ?? no);
  }
  return locked;
}

async function readProfiles(client: Queryable, roots: ReadonlySet<NodeNumber>): Promise<Map<NodeNumber, ProfileState>> {
  const profiles = new Map<NodeNumber, ProfileState>();
  if (roots.size === 0) return profiles;
  const { rows } = await client.query<MemberRow>(READ_PROFILES, [[...roots]]);
  for (const [root, members] of Map.groupBy(rows, (row) => row.root)) {
    const first = members.find(({ no }) => no === root);
    if (first === undefined) throw new StoreConflictError('a profile was erased meanwhile');
    const others = members.filter(({ no }) => no !== root);
    profiles.set(root, {
      root,
      origin: { receivedAt: first.received_at, traceId: first.trace_id, userIndex: first.user_index },
      nodes: [root, ...others.map(({ no }) => no)],
      userId: members.find(({ user_id }) => user_id !== null)?.user_id ?? null,
      emails: total(members, ({ emails }) => emails),
      phoneNumbers: total(members, ({ phone_numbers }) => phone_numbers),
      anonIds: total(members, ({ anon_ids }) => anon_ids),
      cannotLink: members.flatMap(({ cannotLink }) => cannotLink ?? []),
    });
  }
  return profiles;
}

function total(members: readonly MemberRow[], count: (member: MemberRow) => number): number {
  return members.reduce((sum, member) => sum + count(member), 0);
}
