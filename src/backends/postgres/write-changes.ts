/**
 * Writes the changes of `resolve` to the identity graph: identifiers, merges, aliases and refusals, each with its
 * cause; new nodes are inserted with their properties (write-nodes.ts). A match key without a node is locked by its
 * unique index alone: the second writer waits for the first, finds it taken, and that is a conflict. All writers insert
 * identifiers in the same order, so that two never deadlock.
 */

import type { NewIdentifier, Refusal } from '../../identity/graph.ts';
import { IDENTIFIER_TYPES, type MatchKey, type Origin } from '../../model.ts';
import { StoreConflictError, type TenantBatch } from '../../store-writer.ts';
import { int2s, int4s, int8s, texts, uuids } from './binary-arrays.ts';
import type { Queryable } from './pool.ts';

const INSERT_IDENTIFIERS = {
  name: 'store_insert_identifiers',
  text: `
    INSERT INTO identifiers (tenant, type, value, node, raw, received_at, trace_id, user_index)
    SELECT * FROM unnest($1::int4[], $2::int2[], $3::text[], $4::int8[], $5::text[], $6::int8[], $7::uuid[], $8::int4[])
    ON CONFLICT (tenant, type, value) DO NOTHING`,
};

const INSERT_MERGES = {
  name: 'store_insert_merges',
  text: `
    INSERT INTO merges
      (tenant, node_a, node_b, from_node, into_node, via_type, via_value, received_at, trace_id, user_index)
    SELECT tenant, node_a, node_b, from_node, into_node, via_type, via_value, received_at, trace_id, user_index
    FROM unnest($1::int4[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int2[], $7::text[], $8::int8[],
        $9::uuid[], $10::int4[]) WITH ORDINALITY
      AS q (tenant, node_a, node_b, from_node, into_node, via_type, via_value, received_at, trace_id, user_index, ordinal)
    ORDER BY ordinal`,
};

const UPDATE_ALIASES = {
  name: 'store_update_aliases',
  text: `
    UPDATE nodes SET root = q.root FROM unnest($1::int8[], $2::int8[]) AS q (no, root) WHERE nodes.no = q.no`,
};

const INSERT_REFUSALS = {
  name: 'store_insert_refusals',
  text: `
    INSERT INTO refusals (node, type, value, reason, raw, received_at, trace_id, user_index, last_at, count)
    SELECT * FROM unnest($1::int8[], $2::int2[], $3::text[], $4::text[], $5::text[], $6::int8[], $7::uuid[], $8::int4[],
      $9::int8[], $10::int8[])
    ON CONFLICT (node, type, value, reason) DO UPDATE
      SET count = refusals.count + excluded.count, last_at = greatest(refusals.last_at, excluded.last_at)`,
};

const FIND_TAKEN = {
  name: 'store_find_taken',
  text: `
    SELECT 1 FROM unnest($1::int4[], $2::int2[], $3::text[]) AS q (tenant, type, value)
    JOIN identifiers i ON i.tenant = q.tenant AND i.type = q.type AND i.value = q.value LIMIT 1`,
};

/** The changes of one tenant, whose number is `tenant`. */
interface TenantChanges {
  readonly tenant: number;
  readonly batch: TenantBatch;
  /** Whether a match key had a node when the batch was looked up. */
  readonly wasKnown: (key: MatchKey) => boolean;
}

export async function writeChanges(client: Queryable, tenants: readonly TenantChanges[]): Promise<void> {
  await checkRefused(client, tenants);
  await writeIdentifiers(client, tenants);
  await writeMerges(client, tenants);
  await writeAliases(client, tenants);
  await writeRefusals(client, tenants);
}

/**
 * A refused key that had no node is written nowhere, so no index notices if another writer gave it a node while this
 * batch waited for the profile: perhaps that very profile, and then there is nothing to refuse.
 */
async function checkRefused(client: Queryable, tenants: readonly TenantChanges[]): Promise<void> {
  const refused = tenants.flatMap(({ tenant, batch, wasKnown }) =>
    batch.changes.refusals.filter(({ key }) => !wasKnown(key)).map(({ key }) => ({ tenant, key })),
  );
  if (refused.length === 0) return;
  const { rows } = await client.query(FIND_TAKEN, [
    int4s(refused.map(({ tenant }) => tenant)),
    int2s(refused.map(({ key }) => IDENTIFIER_TYPES.indexOf(key.type))),
    texts(refused.map(({ key }) => key.value)),
  ]);
  if (rows.length > 0) throw new StoreConflictError('another writer used an identifier that was about to be refused');
}

interface IdentifierRow extends NewIdentifier {
  readonly tenant: number;
  readonly type: number;
  /** Null if equal to the node's. */
  readonly ownOrigin: Origin | null;
}

async function writeIdentifiers(client: Queryable, tenants: readonly TenantChanges[]): Promise<void> {
  const rows: IdentifierRow[] = [];
  for (const { tenant, batch } of tenants) {
    const { nodes, identifiers } = batch.changes;
    // New nodes have consecutive numbers.
    const firstNode = nodes[0]?.node ?? 0;
    for (const identifier of identifiers) {
      const type = IDENTIFIER_TYPES.indexOf(identifier.key.type);
      const isNodes = nodes[identifier.node - firstNode]?.origin === identifier.origin;
      rows.push({ ...identifier, tenant, type, ownOrigin: isNodes ? null : identifier.origin });
    }
  }
  if (rows.length === 0) return;
  rows.sort(
    (a, b) => a.tenant - b.tenant || a.type - b.type || (a.key.value < b.key.value ? -1 : +(a.key.value > b.key.value)),
  );
  const { rowCount } = await client.query(INSERT_IDENTIFIERS, [
    int4s(rows.map(({ tenant }) => tenant)),
    int2s(rows.map(({ type }) => type)),
    texts(rows.map(({ key }) => key.value)),
    int8s(rows.map(({ node }) => node)),
    texts(rows.map(({ key }) => (key.raw === key.value ? null : key.raw))),
    int8s(rows.map(({ ownOrigin }) => ownOrigin?.receivedAt ?? null)),
    uuids(rows.map(({ ownOrigin }) => ownOrigin?.traceId ?? null)),
    int4s(rows.map(({ ownOrigin }) => ownOrigin?.userIndex ?? null)),
  ]);
  if (rowCount < rows.length) throw new StoreConflictError('another writer was first to use an identifier');
}

async function writeMerges(client: Queryable, tenants: readonly TenantChanges[]): Promise<void> {
  const rows = tenants.flatMap(({ tenant, batch }) => batch.changes.merges.map((merge) => ({ ...merge, tenant })));
  if (rows.length === 0) return;
  await client.query(INSERT_MERGES, [
    int4s(rows.map(({ tenant }) => tenant)),
    int8s(rows.map(({ nodes }) => nodes[0])),
    int8s(rows.map(({ nodes }) => nodes[1])),
    int8s(rows.map(({ from }) => from)),
    int8s(rows.map(({ into }) => into)),
    int2s(rows.map(({ via }) => IDENTIFIER_TYPES.indexOf(via.type))),
    texts(rows.map(({ via }) => via.raw)),
    int8s(rows.map(({ origin }) => origin.receivedAt)),
    uuids(rows.map(({ origin }) => origin.traceId)),
    int4s(rows.map(({ origin }) => origin.userIndex)),
  ]);
}

/** Writes the aliases of existing nodes; new ones are inserted with theirs. */
async function writeAliases(client: Queryable, tenants: readonly TenantChanges[]): Promise<void> {
  const rows: (readonly [number, number])[] = [];
  for (const { batch } of tenants) {
    const { nodes, aliases } = batch.changes;
    if (aliases.size === 0) continue;
    const isNew = new Set(nodes.map(({ node }) => node));
    for (const alias of aliases) if (!isNew.has(alias[0])) rows.push(alias);
  }
  if (rows.length === 0) return;
  rows.sort(([a], [b]) => a - b);
  const { rowCount } = await client.query(UPDATE_ALIASES, [
    int8s(rows.map(([node]) => node)),
    int8s(rows.map(([, root]) => root)),
  ]);
  if (rowCount !== rows.length) throw new StoreConflictError('a profile was erased meanwhile');
}

interface RefusalRow extends Refusal {
  readonly type: number;
  lastAt: number;
  count: number;
}

/** Refusals of one kind are one row: the cause of the first, the time of the last, and the count. */
async function writeRefusals(client: Queryable, tenants: readonly TenantChanges[]): Promise<void> {
  const byKind = new Map<string, RefusalRow>();
  for (const { batch } of tenants) {
    for (const refusal of batch.changes.refusals) {
      const { node, key, reason, origin } = refusal;
      const type = IDENTIFIER_TYPES.indexOf(key.type);
      const kind = `${node} ${type} ${reason} ${key.value}`;
      const before = byKind.get(kind);
      if (before === undefined) {
        byKind.set(kind, { ...refusal, type, lastAt: origin.receivedAt, count: 1 });
        continue;
      }
      before.lastAt = Math.max(before.lastAt, origin.receivedAt);
      before.count += 1;
    }
  }
  const rows = [...byKind.values()];
  if (rows.length === 0) return;
  await client.query(INSERT_REFUSALS, [
    int8s(rows.map(({ node }) => node)),
    int2s(rows.map(({ type }) => type)),
    texts(rows.map(({ key }) => key.value)),
    texts(rows.map(({ reason }) => reason)),
    texts(rows.map(({ key }) => key.raw)),
    int8s(rows.map(({ origin }) => origin.receivedAt)),
    uuids(rows.map(({ origin }) => origin.traceId)),
    int4s(rows.map(({ origin }) => origin.userIndex)),
    int8s(rows.map(({ lastAt }) => lastAt)),
    int8s(rows.map(({ count }) => count)),
  ]);
}
