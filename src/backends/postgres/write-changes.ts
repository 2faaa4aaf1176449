/**
 * Writes the identity graph. Of nodes: the number of events, first and last seen, properties (views/node-properties.ts);
 * new ones are inserted with these, others, whose rows the lookup has locked, are updated. And the changes of `resolve`:
 * identifiers, merges, aliases and refusals, each with its cause. A match key without a node is locked by its unique
 * index alone: the second writer waits for the first, finds it taken, and that is a conflict. All writers insert
 * identifiers in the same order, so that two never deadlock. One statement a table per batch; only very large properties
 * take more, to limit memory.
 */

import type { NewIdentifier, Refusal } from '../../identity/graph.ts';
import { nodeIdOf } from '../../identity/node-id.ts';
import { IDENTIFIER_TYPES, type MatchKey, type NodeNumber, type Origin } from '../../model.ts';
import { StoreConflictError, type TenantBatch, type UserToStore } from '../../store-writer.ts';
import {
  boundedText,
  foldedGroups,
  groupsIn,
  groupsText,
  NO_GROUPS,
  type Sum,
  sumOf,
  type Visits,
} from '../../views/node-properties.ts';
import type { Queryable } from './pool.ts';
import { bool, insertInto, int2, int4, int8, RowsStatement, text, uuid } from './rows-statement.ts';
import type { LockedNodes } from './write-graph.ts';

interface IdentifierRow extends NewIdentifier {
  readonly tenant: number;
  readonly type: number;
  /** Null if equal to the node's. */
  readonly ownOrigin: Origin | null;
}

const INSERT_IDENTIFIERS = insertInto<IdentifierRow>(
  'identifiers',
  {
    tenant: int4(({ tenant }) => tenant),
    type: int2(({ type }) => type),
    value: text(({ key }) => key.value),
    node: int8(({ node }) => node),
    raw: text(({ key }) => (key.raw === key.value ? null : key.raw)),
    received_at: int8(({ ownOrigin }) => ownOrigin?.receivedAt ?? null),
    trace_id: uuid(({ ownOrigin }) => ownOrigin?.traceId ?? null),
    user_index: int4(({ ownOrigin }) => ownOrigin?.userIndex ?? null),
  },
  'ON CONFLICT (tenant, type, value) DO NOTHING',
);

type MergeRow = TenantBatch['changes']['merges'][number] & { readonly tenant: number };

const INSERT_MERGES = insertInto<MergeRow>(
  'merges',
  {
    tenant: int4(({ tenant }) => tenant),
    node_a: int8(({ nodes }) => nodes[0]),
    node_b: int8(({ nodes }) => nodes[1]),
    from_node: int8(({ from }) => from),
    into_node: int8(({ into }) => into),
    via_type: int4(({ via }) => IDENTIFIER_TYPES.indexOf(via.type)),
    via_value: text(({ via }) => via.raw),
    received_at: int8(({ origin }) => origin.receivedAt),
    trace_id: uuid(({ origin }) => origin.traceId),
    user_index: int4(({ origin }) => origin.userIndex),
  },
  'ORDER BY ordinal',
);

const UPDATE_ALIASES = new RowsStatement<readonly [node: NodeNumber, root: NodeNumber]>(
  'update_aliases',
  { no: int8(([node]) => node), root: int8(([, root]) => root) },
  (rows) => `UPDATE nodes SET root = q.root FROM ${rows} WHERE nodes.no = q.no`,
);

interface RefusalRow extends Refusal {
  lastAt: number;
  count: number;
}

const INSERT_REFUSALS = insertInto<RefusalRow>(
  'refusals',
  {
    node: int8(({ node }) => node),
    type: int4(({ key }) => IDENTIFIER_TYPES.indexOf(key.type)),
    value: text(({ key }) => key.value),
    reason: text(({ reason }) => reason),
    raw: text(({ key }) => key.raw),
    received_at: int8(({ origin }) => origin.receivedAt),
    trace_id: uuid(({ origin }) => origin.traceId),
    user_index: int4(({ origin }) => origin.userIndex),
    last_at: int8(({ lastAt }) => lastAt),
    count: int8(({ count }) => count),
  },
  `ON CONFLICT (node, type, value, reason) DO UPDATE
     SET count = refusals.count + excluded.count, last_at = greatest(refusals.last_at, excluded.last_at)`,
);

const FIND_TAKEN = new RowsStatement<{ readonly tenant: number; readonly key: MatchKey }>(
  'find_taken',
  {
    tenant: int4(({ tenant }) => tenant),
    type: int2(({ key }) => IDENTIFIER_TYPES.indexOf(key.type)),
    value: text(({ key }) => key.value),
  },
  (rows) => `
    SELECT 1 FROM ${rows}
    JOIN identifiers i ON i.tenant = q.tenant AND i.type = q.type AND i.value = q.value LIMIT 1`,
);

/** The batch of one tenant, whose number is `tenant`. */
export interface NumberedBatch {
  readonly tenant: number;
  readonly batch: TenantBatch;
  /** Its users, by the node that they went to. */
  readonly visits: Visits;
  /** Whether a match key had a node when the batch was looked up. */
  readonly wasKnown: (key: MatchKey) => boolean;
}

export async function writeChanges(client: Queryable, tenants: readonly NumberedBatch[]): Promise<void> {
  await checkRefused(client, tenants);
  await writeIdentifiers(client, tenants);
  const merges = tenants.flatMap(({ tenant, batch }) => batch.changes.merges.map((merge) => ({ ...merge, tenant })));
  await INSERT_MERGES.query(client, merges);
  await writeAliases(client, tenants);
  await writeRefusals(client, tenants);
}

/**
 * A refused key that had no node is written nowhere, so no index notices if another writer gave it a node while this
 * batch waited for the profile: perhaps that very profile, and then there is nothing to refuse.
 */
async function checkRefused(client: Queryable, tenants: readonly NumberedBatch[]): Promise<void> {
  const refused = tenants.flatMap(({ tenant, batch, wasKnown }) =>
    batch.changes.refusals.filter(({ key }) => !wasKnown(key)).map(({ key }) => ({ tenant, key })),
  );
  const { rowCount } = await FIND_TAKEN.query(client, refused);
  if (rowCount > 0) throw new StoreConflictError('another writer used an identifier that was about to be refused');
}

async function writeIdentifiers(client: Queryable, tenants: readonly NumberedBatch[]): Promise<void> {
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
  rows.sort(
    (a, b) => a.tenant - b.tenant || a.type - b.type || (a.key.value < b.key.value ? -1 : +(a.key.value > b.key.value)),
  );
  const { rowCount } = await INSERT_IDENTIFIERS.query(client, rows);
  if (rowCount < rows.length) throw new StoreConflictError('another writer was first to use an identifier');
}

/** Writes the aliases of existing nodes; new ones are inserted with theirs. */
async function writeAliases(client: Queryable, tenants: readonly NumberedBatch[]): Promise<void> {
  const rows: (readonly [number, number])[] = [];
  for (const { batch } of tenants) {
    const { nodes, aliases } = batch.changes;
    if (aliases.size === 0) continue;
    const isNew = new Set(nodes.map(({ node }) => node));
    for (const alias of aliases) if (!isNew.has(alias[0])) rows.push(alias);
  }
  rows.sort(([a], [b]) => a - b);
  const { rowCount } = await UPDATE_ALIASES.query(client, rows);
  if (rowCount !== rows.length) throw new StoreConflictError('a profile was erased meanwhile');
}

/** Refusals of one kind are one row: the cause of the first, the time of the last, and the count. */
async function writeRefusals(client: Queryable, tenants: readonly NumberedBatch[]): Promise<void> {
  const byKind = new Map<string, RefusalRow>();
  for (const { batch } of tenants) {
    for (const refusal of batch.changes.refusals) {
      const { node, key, reason, origin } = refusal;
      const kind = `${node} ${key.type} ${reason} ${key.value}`;
      const before = byKind.get(kind);
      if (before === undefined) {
        byKind.set(kind, { ...refusal, lastAt: origin.receivedAt, count: 1 });
        continue;
      }
      before.lastAt = Math.max(before.lastAt, origin.receivedAt);
      before.count += 1;
    }
  }
  await INSERT_REFUSALS.query(client, [...byKind.values()]);
}

/** Limit of the texts in one statement, in characters: ordinary people fit, a few with megabytes each do not. */
const STATEMENT_LENGTH_MAX = 32 * 1024 * 1024;

interface NewRow extends Sum {
  readonly no: NodeNumber;
  readonly tenant: number;
  readonly id: string;
  readonly origin: Origin;
  readonly root: NodeNumber | null;
  readonly properties: string | null;
}

const INSERT_NODES = insertInto<NewRow>(
  'nodes',
  {
    no: int8(({ no }) => no),
    tenant: int4(({ tenant }) => tenant),
    id: uuid(({ id }) => id),
    received_at: int8(({ origin }) => origin.receivedAt),
    trace_id: uuid(({ origin }) => origin.traceId),
    user_index: int4(({ origin }) => origin.userIndex),
    root: int8(({ root }) => root),
    events: int8(({ events }) => events),
    first_seen: int8(({ first }) => first),
    last_seen: int8(({ last }) => last),
    properties: text(({ properties }) => properties),
  },
  'ON CONFLICT (id) DO NOTHING',
);

interface UpdatedRow extends Sum {
  readonly no: NodeNumber;
  /** Undefined: unchanged. */
  readonly properties: string | null | undefined;
}

const UPDATE_NODES = new RowsStatement<UpdatedRow>(
  'update_nodes',
  {
    no: int8(({ no }) => no),
    events: int8(({ events }) => events),
    first: int8(({ first }) => first),
    last: int8(({ last }) => last),
    changes: bool(({ properties }) => properties !== undefined),
    properties: text(({ properties }) => properties ?? null),
  },
  (rows) => `
    UPDATE nodes SET events = nodes.events + q.events, first_seen = least(nodes.first_seen, q.first),
      last_seen = greatest(nodes.last_seen, q.last), properties = CASE WHEN q.changes THEN q.properties ELSE nodes.properties END
    FROM ${rows} WHERE nodes.no = q.no`,
);

const READ_PROPERTIES = { name: 'store_read_properties', text: 'SELECT properties FROM nodes WHERE no = $1' };

export async function writeNodes(
  client: Queryable,
  tenants: readonly NumberedBatch[],
  locked: LockedNodes,
): Promise<void> {
  const created: NewRow[] = [];
  for (const { tenant, batch, visits } of tenants) {
    for (const { node, origin } of batch.changes.nodes) {
      created.push(newRow(tenant, batch, node, origin, visits.get(node) ?? []));
    }
  }
  for (const some of pieces(created)) await insert(client, some);
  let updated: UpdatedRow[] = [];
  let length = 0;
  for (const { batch, visits } of tenants) {
    const isNew = new Set(batch.changes.nodes.map(({ node }) => node));
    for (const [node, users] of visits) {
      if (isNew.has(node)) continue;
      const properties = await propertiesAfter(client, node, users, locked);
      updated.push({ no: node, ...sumOf(users), properties });
      length += properties?.length ?? 0;
      // So that a later batch of this transaction continues from there.
      if (properties !== undefined) locked.set(node, properties);
      if (length < STATEMENT_LENGTH_MAX) continue;
      await update(client, updated);
      updated = [];
      length = 0;
    }
  }
  await update(client, updated);
}

function newRow(
  tenant: number,
  { tenantId, changes }: TenantBatch,
  no: NodeNumber,
  origin: Origin,
  users: readonly UserToStore[],
): NewRow {
  const { events, first, last } = sumOf(users);
  const [user, ...others] = users;
  return {
    no,
    tenant,
    id: nodeIdOf(tenantId, origin),
    origin,
    root: changes.aliases.get(no) ?? null,
    events,
    first: Math.min(origin.receivedAt, first),
    last: Math.max(origin.receivedAt, last),
    properties: user && others.length === 0 ? propertiesText(user) : boundedText(foldedGroups(NO_GROUPS, users)),
  };
}

function propertiesText({ origin, propertyUpdate }: UserToStore): string | null {
  return propertyUpdate === null ? null : groupsText(origin, propertyUpdate);
}

async function propertiesAfter(
  client: Queryable,
  node: NodeNumber,
  users: readonly UserToStore[],
  locked: LockedNodes,
): Promise<string | null | undefined> {
  if (!locked.has(node)) throw new Error(`node ${node} was not looked up`);
  if (users.every(({ propertyUpdate }) => propertyUpdate === null)) return undefined;
  const before = locked.get(node);
  return boundedText(foldedGroups(groupsIn(before === undefined ? await readProperties(client, node) : before), users));
}

async function readProperties(client: Queryable, node: NodeNumber): Promise<string | null> {
  const { rows } = await client.query<{ properties: string | null }>(READ_PROPERTIES, [node]);
  return rows[0]?.properties ?? null;
}

function* pieces(rows: readonly NewRow[]): Generator<NewRow[]> {
  let piece: NewRow[] = [];
  let length = 0;
  for (const row of rows) {
    piece.push(row);
    length += row.properties?.length ?? 0;
    if (length < STATEMENT_LENGTH_MAX) continue;
    yield piece;
    piece = [];
    length = 0;
  }
  yield piece;
}

async function insert(client: Queryable, rows: readonly NewRow[]): Promise<void> {
  const { rowCount } = await INSERT_NODES.query(client, rows);
  // An id is derived from the origin, so no other writer inserts it meanwhile: a retry would not help.
  if (rowCount < rows.length) throw new Error('a profile of the same request and user is in the store already');
}

async function update(client: Queryable, rows: readonly UpdatedRow[]): Promise<void> {
  const { rowCount } = await UPDATE_NODES.query(client, rows);
  if (rowCount !== rows.length) throw new Error(`${rows.length - rowCount} nodes are not in the store`);
}
