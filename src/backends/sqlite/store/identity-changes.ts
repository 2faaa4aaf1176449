/**
 * Writes the changes of `resolve` to the identity graph: identifiers, merges, aliases and refusals, each with its
 * cause. New nodes are written with their properties (store/nodes.ts). Refusals of one kind are counted, not repeated.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { Changes, NewIdentifier } from '../../../identity/graph.ts';
import { IDENTIFIER_TYPES } from '../../../model.ts';
import { keySetHashOf, type StoreMatchKeys } from './match-keys.ts';
import { uuidBytes } from '../uuids.ts';

export class StoreChanges {
  readonly #identifier: StatementSync;
  readonly #merge: StatementSync;
  readonly #alias: StatementSync;
  readonly #refusal: StatementSync;
  readonly #keys: StoreMatchKeys;

  constructor(database: DatabaseSync, keys: StoreMatchKeys) {
    this.#keys = keys;
    this.#identifier = database.prepare('INSERT INTO identifiers VALUES (?, ?, ?, ?, ?, ?, ?, ?)');
    this.#merge = database.prepare('INSERT INTO merges VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
    this.#alias = database.prepare('INSERT INTO aliases VALUES (?, ?) ON CONFLICT DO UPDATE SET root = excluded.root');
    this.#refusal = database.prepare(
      `INSERT INTO refusals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1)
       ON CONFLICT DO UPDATE SET count = count + 1, last_at = max(last_at, excluded.last_at)`,
    );
  }

  write(tenant: number, changes: Changes): void {
    // New nodes have consecutive numbers.
    const firstNode = changes.nodes[0]?.node ?? 0;
    const { identifiers } = changes;
    for (let at = 0; at < identifiers.length; at++) {
      const { key, node, origin } = identifiers[at] as NewIdentifier;
      const { type, value, raw } = key;
      this.#keys.insert(tenant, key, node, this.#keySetHashOf(tenant, identifiers, at));
      const typeNo = IDENTIFIER_TYPES.indexOf(type);
      const differentRaw = raw === value ? null : raw;
      if (changes.nodes[node - firstNode]?.origin === origin) {
        this.#identifier.run(tenant, typeNo, value, node, differentRaw, null, null, null);
        continue;
      }
      const traceId = uuidBytes(origin.traceId);
      this.#identifier.run(tenant, typeNo, value, node, differentRaw, origin.receivedAt, traceId, origin.userIndex);
    }
    for (const { nodes, from, into, via, origin } of changes.merges) {
      this.#merge.run(
        tenant,
        nodes[0],
        nodes[1],
        from,
        into,
        IDENTIFIER_TYPES.indexOf(via.type),
        via.raw,
        origin.receivedAt,
        uuidBytes(origin.traceId),
        origin.userIndex,
      );
    }
    for (const [node, root] of changes.aliases) this.#alias.run(node, root);
    for (const { node, key, reason, origin } of changes.refusals) {
      const { type, value, raw } = key;
      const { receivedAt, traceId, userIndex } = origin;
      const typeNo = IDENTIFIER_TYPES.indexOf(type);
      this.#refusal.run(node, typeNo, value, reason, raw, receivedAt, uuidBytes(traceId), userIndex, receivedAt);
    }
  }
  /** Null unless this is the first of those that a user brought to one node. */
  #keySetHashOf(tenant: number, identifiers: readonly NewIdentifier[], first: number): number | null {
    if (isTogether(identifiers[first - 1], identifiers[first])) return null;
    let end = first + 1;
    while (isTogether(identifiers[first], identifiers[end])) end += 1;
    const keys = identifiers.slice(first, end).map(({ key }) => key);
    return keySetHashOf(this.#keys.identityFingerprint(tenant, keys));
  }
}

function isTogether(one: NewIdentifier | undefined, other: NewIdentifier | undefined): boolean {
  return one !== undefined && other !== undefined && one.origin === other.origin && one.node === other.node;
}
