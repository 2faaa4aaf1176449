/**
 * Writes the changes of `resolve` to the identity graph: identifiers, merges, aliases and refusals, each with its
 * cause. New nodes are written with their properties (store/nodes.ts). Refusals of one kind are counted, not repeated.
 */

import type { Changes, NewIdentifier } from '../../../identity/graph.ts';
import { IDENTIFIER_TYPES } from '../../../model.ts';
import type { StoreConnection } from './connection.ts';
import { keySetHashOf, type StoreMatchKeys } from './match-keys.ts';
import { uuidBytes } from '../uuids.ts';

const INSERT_IDENTIFIER = 'INSERT INTO identifiers VALUES (?, ?, ?, ?, ?, ?, ?, ?)';

export function writeChanges(store: StoreConnection, keys: StoreMatchKeys, tenant: number, changes: Changes): void {
  // New nodes have consecutive numbers.
  const firstNode = changes.nodes[0]?.node ?? 0;
  const { identifiers } = changes;
  for (const [at, { key, node, origin }] of identifiers.entries()) {
    const { type, value, raw } = key;
    keys.insert(tenant, key, node, keySetHashAt(keys, tenant, identifiers, at));
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

/** Null unless this is the first of those that a user brought to one node. */
function keySetHashAt(
  keys: StoreMatchKeys,
  tenant: number,
  identifiers: readonly NewIdentifier[],
  first: number,
): number | null {
  if (isTogether(identifiers[first - 1], identifiers[first])) return null;
  let end = first + 1;
  while (isTogether(identifiers[first], identifiers[end])) end += 1;
  const together = identifiers.slice(first, end).map(({ key }) => key);
  return keySetHashOf(keys.identityFingerprint(tenant, together));
}

function isTogether(one: NewIdentifier | undefined, other: NewIdentifier | undefined): boolean {
  return one !== undefined && other !== undefined && one.origin === other.origin && one.node === other.node;
}
