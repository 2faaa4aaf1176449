/**
 * A writer's cache of people it has seen: from all match keys of a user to the node of the strongest key, provided all
 * keys belong to one profile. Most users come back with the same identifiers, and then need no lookup per key. Entries
 * stay valid whatever other processors merge and link; only an erase or an unmerge invalidates them. Both increment
 * `tenants.invalidation_count` and list the nodes they changed in `invalidations`: where the count is not the one that
 * entries were read with, these nodes are dropped (all people of the tenant if some invalidations are no longer stored),
 * and the batch is looked up again. Data received before an erase always bypasses the cache.
 */

import type { NodeNumber } from '../../model.ts';
import { type PersonKeys, StoreConflictError } from '../../store-writer.ts';
import { type HashOfKey, identityFingerprint } from '../../views/keyed-hash.ts';
import { IdentityCache } from '../../views/identity-cache.ts';
import type { Queryable } from './pool.ts';

const READ_INVALIDATION_STATES = {
  name: 'store_read_invalidation_states',
  text: 'SELECT no, invalidation_count, last_erased_at FROM tenants WHERE no = ANY ($1::int4[])',
};

const BLOCK_ERASES = {
  name: 'store_block_erases',
  text: 'SELECT no, invalidation_count FROM tenants WHERE no = ANY ($1::int4[]) ORDER BY no FOR SHARE',
};

const READ_INVALIDATIONS = {
  name: 'store_read_invalidations',
  text: 'SELECT nodes FROM invalidations WHERE tenant = $1 AND no > $2 AND no <= $3',
};

/** A tenant's erases and unmerges. */
export interface InvalidationState {
  /** Erases and unmerges so far. */
  readonly count: number;
  readonly lastErasedAt: number;
}

/** By the tenant's number. */
export async function readInvalidationStates(
  client: Queryable,
  tenants: readonly number[],
): Promise<Map<number, InvalidationState>> {
  const { rows } = await client.query<{ no: number; invalidation_count: number; last_erased_at: number }>(
    READ_INVALIDATION_STATES,
    [tenants],
  );
  return new Map(rows.map((row) => [row.no, { count: row.invalidation_count, lastErasedAt: row.last_erased_at }]));
}

/**
 * For data about people who have no node to lock: rejected users, and keys that had no node when they were looked up.
 * Blocks erases until the transaction ends; an erase since `counts` was read is a conflict.
 */
export async function blockErases(
  client: Queryable,
  tenants: readonly number[],
  counts: ReadonlyMap<number, number>,
): Promise<void> {
  if (tenants.length === 0) return;
  const { rows } = await client.query<{ no: number; invalidation_count: number }>(BLOCK_ERASES, [tenants]);
  if (rows.some((row) => row.invalidation_count !== counts.get(row.no))) {
    throw new StoreConflictError('a person was erased meanwhile');
  }
}

/** The nodes invalidated after number `after`, up to `last`; undefined if not all of these are still stored. */
async function readInvalidations(
  client: Queryable,
  tenant: number,
  after: number,
  last: number,
): Promise<Set<NodeNumber> | undefined> {
  const { rows } = await client.query<{ nodes: readonly NodeNumber[] }>(READ_INVALIDATIONS, [tenant, after, last]);
  return rows.length === last - after ? new Set(rows.flatMap(({ nodes }) => nodes)) : undefined;
}

export class PersonCache {
  /** Hashed with a generation for the tenant; a new one drops its entries. */
  readonly #people = new IdentityCache();
  readonly #hashOf: HashOfKey;
  readonly #generations = new Map<number, InvalidationState & { readonly generation: number }>();
  #lastGeneration = 0;

  constructor(hashOf: HashOfKey) {
    this.#hashOf = hashOf;
  }

  /** Undefined means unknown. `receivedAtMin` is the oldest time of receipt of the batch. */
  nodeOf(tenant: number, { keys }: PersonKeys, receivedAtMin: number): NodeNumber | undefined {
    const cached = this.#generations.get(tenant);
    if (cached === undefined || cached.lastErasedAt >= receivedAtMin) return undefined;
    return this.#people.get(identityFingerprint(this.#hashOf, cached.generation, keys));
  }

  /**
   * Whether nothing was invalidated since the last call; false on the first call. Drops the nodes invalidated since.
   */
  async isCurrent(client: Queryable, tenant: number, now: InvalidationState): Promise<boolean> {
    const cached = this.#generations.get(tenant);
    if (cached?.count === now.count) return true;
    const nodes = cached && (await readInvalidations(client, tenant, cached.count, now.count));
    if (cached === undefined || nodes === undefined) {
      this.#lastGeneration += 1;
      this.#generations.set(tenant, { ...now, generation: this.#lastGeneration });
    } else {
      this.#people.drop(nodes);
      this.#generations.set(tenant, { ...now, generation: cached.generation });
    }
    return false;
  }

  /** After a commit: people found in a transaction in which `isCurrent` was true at this invalidation count. */
  add(tenant: number, count: number, people: Iterable<readonly [user: PersonKeys, node: NodeNumber]>): void {
    const cached = this.#generations.get(tenant);
    if (cached?.count !== count) return;
    for (const [{ keys }, node] of people) {
      this.#people.set(identityFingerprint(this.#hashOf, cached.generation, keys), node);
    }
  }

  /** Nodes that no longer exist. */
  drop(nodes: ReadonlySet<NodeNumber>): void {
    this.#people.drop(nodes);
  }

  /** For when the database may have changed under us: the cached nodes may be gone or belong to other people. */
  clear(): void {
    this.#generations.clear();
  }
}
