/**
 * The identity graph as a batch needs it: match keys, roots, profiles. People and roots are cached, because
 * only the writer adds to them; nodes changed by an erase or unmerge are dropped. Reads run inside the writer's
 * transaction, so they see what it wrote before. A prediction (predictions.ts) uses a new one on a reader's
 * connection.
 */

import type { Changes, ProfileState, Snapshot } from '../../../identity/graph.ts';
import { resolvedNodeOf } from '../../../identity/resolve.ts';
import { IDENTIFIER_TYPES, type MatchKey, type NodeNumber } from '../../../model.ts';
import type { PersonKeys, LookupRequest, ResolvedPerson } from '../../../store-writer.ts';
import { identityFingerprint } from '../../../views/keyed-hash.ts';
import { IdentityCache } from '../../../views/identity-cache.ts';
import type { StoreConnection } from './connection.ts';
import { findOwner, runKeyOf } from './match-keys.ts';
import { rootOf } from './profiles.ts';
import type { BufferedRuns } from '../sorted-runs/sorted-runs.ts';
import type { StoredRuns } from '../sorted-runs/stored-runs.ts';
import { uuidBytes, uuidText } from '../uuids.ts';

/** Limit for cached roots; beyond it the cache is cleared. */
const CACHED_ROOTS_MAX = 200_000;

/** Indexes in IDENTIFIER_TYPES. */
const USER_ID = 0;
const EMAIL = 1;
const PHONE_NUMBER = 2;
const ANON_ID = 3;

/** A node, once for each of its identifiers; if it has none, once without. */
const NODE_WITH_IDENTIFIERS = `
  SELECT type, CASE WHEN type = ${USER_ID} THEN value END AS user_id, nodes.received_at, nodes.trace_id, nodes.user_index
  FROM nodes LEFT JOIN identifiers ON node = no WHERE no = ?`;

interface NodeRow {
  readonly type: number | null;
  readonly user_id: string | null;
  readonly received_at: number;
  readonly trace_id: Uint8Array;
  readonly user_index: number;
}

/** No node: within a batch, unknown keys are cached too. */
const UNKNOWN = 0;

export class StoreGraph {
  readonly #store: StoreConnection;
  /** Those of match keys. */
  readonly #keys: StoredRuns;
  /** Whether an unmerge separated any nodes; undefined until that is looked up. */
  #hasCannotLink: boolean | undefined;
  /** All keys of a user together → the node of the strongest, where all of them are known and of one profile. */
  readonly #people = new IdentityCache();
  readonly #roots = new Map<NodeNumber, NodeNumber>();

  constructor(store: StoreConnection, keys: StoredRuns) {
    this.#store = store;
    this.#keys = keys;
  }

  forget(): void {
    this.#people.clear();
    this.#roots.clear();
    this.#hasCannotLink = undefined;
  }

  /**
   * Drops all nodes of profiles that were erased or unmerged. All keys of a cached person belong to one profile, so
   * entries that lead to none of these nodes stay valid.
   */
  drop(nodes: ReadonlySet<NodeNumber>): void {
    this.#people.drop(nodes);
    for (const node of nodes) this.#roots.delete(node);
    this.#hasCannotLink = undefined;
  }

  snapshot(tenant: number, request: LookupRequest, nextNode: NodeNumber): Snapshot {
    const nodes = new Map<MatchKey, NodeNumber>();
    const nodeOf = (key: MatchKey): NodeNumber | undefined => {
      const find = (): NodeNumber => findOwner(this.#keys, runKeyOf(this.#store.hashOf, tenant, key)) ?? UNKNOWN;
      const node = nodes.getOrInsertComputed(key, find);
      return node === UNKNOWN ? undefined : node;
    };
    const rootOf = (node: NodeNumber): NodeNumber => this.#rootOf(node);
    const resolved = new Map<PersonKeys, NodeNumber>();
    for (const user of request.users) {
      const person = identityFingerprint(this.#store.hashOf, tenant, user.keys);
      let node = this.#people.get(person);
      if (node === undefined) {
        node = resolvedNodeOf(user.keys, nodeOf, rootOf);
        if (node === undefined) continue;
        this.#people.set(person, node);
      }
      resolved.set(user, node);
    }
    return {
      nextNode,
      resolvedNodeOf: (user) => resolved.get(user),
      nodeOf,
      rootOf,
      profileOf: (root) => this.#profileOf(root),
    };
  }

  /** Updates the caches after a write. */
  cache(tenant: number, { aliases }: Changes, resolved: readonly ResolvedPerson[]): void {
    for (const [node, root] of aliases) this.#roots.set(node, root);
    // New people are known from now on, and will come again.
    for (const { user, node } of resolved) {
      this.#people.set(identityFingerprint(this.#store.hashOf, tenant, user.keys), node);
    }
  }

  #rootOf(node: NodeNumber): NodeNumber {
    const cached = this.#roots.get(node);
    if (cached !== undefined) return cached;
    const root = rootOf(this.#store, node);
    if (this.#roots.size >= CACHED_ROOTS_MAX) this.#roots.clear();
    this.#roots.set(node, root);
    return root;
  }

  #profileOf(root: NodeNumber): ProfileState {
    const aliases = 'SELECT node FROM aliases WHERE root = ? ORDER BY node';
    const nodes = [root, ...this.#store.all<{ node: NodeNumber }>(aliases, root).map(({ node }) => node)];
    const rows = nodes.flatMap((node) => this.#store.all<NodeRow>(NODE_WITH_IDENTIFIERS, node));
    const { received_at: receivedAt, trace_id: traceId, user_index: userIndex } = rows[0] as NodeRow;
    const counts = [0, 0, 0, 0];
    for (const { type } of rows) if (type !== null) counts[type] = (counts[type] ?? 0) + 1;
    const userId = rows.find(({ type }) => type === USER_ID)?.user_id ?? null;
    return {
      root,
      origin: { receivedAt, traceId: uuidText(traceId), userIndex },
      nodes,
      userId,
      emails: counts[EMAIL] ?? 0,
      phoneNumbers: counts[PHONE_NUMBER] ?? 0,
      anonIds: counts[ANON_ID] ?? 0,
      cannotLink: this.#cannotLink(nodes),
    };
  }

  /** Skips the lookup if nothing was ever unmerged, which is nearly always. */
  #cannotLink(nodes: readonly NodeNumber[]): number[] {
    this.#hasCannotLink ??= this.#store.get('SELECT 1 FROM cannot_link LIMIT 1') !== undefined;
    if (!this.#hasCannotLink) return [];
    const sql = 'SELECT node_b FROM cannot_link WHERE node_a = ? ORDER BY node_b';
    return nodes.flatMap((node) => this.#store.all<{ node_b: NodeNumber }>(sql, node).map(({ node_b }) => node_b));
  }
}

const INSERT_IDENTIFIER = 'INSERT INTO identifiers VALUES (?, ?, ?, ?, ?, ?, ?, ?)';

/**
 * Writes the changes of `resolve`: identifiers, merges, aliases and refusals, each with its cause. New nodes are written
 * with their properties (profile-runs.ts). Refusals of one kind are counted, not repeated.
 */
export function writeChanges(store: StoreConnection, keys: BufferedRuns, tenant: number, changes: Changes): void {
  // New nodes have consecutive numbers.
  const firstNode = changes.nodes[0]?.node ?? 0;
  for (const { key, node, origin } of changes.identifiers) {
    const { type, value, raw } = key;
    keys.put(runKeyOf(store.hashOf, tenant, key), [node]);
    const own = [tenant, IDENTIFIER_TYPES.indexOf(type), value, node, raw === value ? null : raw] as const;
    if (changes.nodes[node - firstNode]?.origin === origin) store.run(INSERT_IDENTIFIER, ...own, null, null, null);
    else store.run(INSERT_IDENTIFIER, ...own, origin.receivedAt, uuidBytes(origin.traceId), origin.userIndex);
  }
  for (const { nodes, from, into, via, origin } of changes.merges) {
    store.run(
      'INSERT INTO merges VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
      ...[tenant, ...nodes, from, into, IDENTIFIER_TYPES.indexOf(via.type), via.raw],
      ...[origin.receivedAt, uuidBytes(origin.traceId), origin.userIndex],
    );
  }
  for (const [node, root] of changes.aliases) {
    store.run('INSERT INTO aliases VALUES (?, ?) ON CONFLICT DO UPDATE SET root = excluded.root', node, root);
  }
  for (const { node, key, reason, origin } of changes.refusals) {
    const { receivedAt, traceId, userIndex } = origin;
    store.run(
      `INSERT INTO refusals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1)
       ON CONFLICT DO UPDATE SET count = count + 1, last_at = max(last_at, excluded.last_at)`,
      ...[node, IDENTIFIER_TYPES.indexOf(key.type), key.value, reason, key.raw],
      ...[receivedAt, uuidBytes(traceId), userIndex, receivedAt],
    );
  }
}
