/**
 * Writes what a batch changes in nodes: the number of events, first and last seen, properties
 * (views/node-properties.ts). New nodes are inserted with it; others, whose rows the lookup has locked, are updated;
 * one statement each per batch. Only very large properties take more statements, to limit memory.
 */

import { nodeIdOf } from '../../identity/node-id.ts';
import type { NodeNumber, Origin, TenantId } from '../../model.ts';
import type { TenantBatch, UserToStore } from '../../store-writer.ts';
import {
  boundedText,
  foldedGroups,
  groupsIn,
  groupsText,
  NO_GROUPS,
  sumOf,
  type Visits,
} from '../../views/node-properties.ts';
import { booleans, int4s, int8s, texts, uuids } from './binary-arrays.ts';
import type { Queryable } from './pool.ts';
import type { LockedNodes } from './write-graph.ts';

/** Limit of the texts in one statement, in characters: ordinary people fit, a few with megabytes each do not. */
const STATEMENT_LENGTH_MAX = 32 * 1024 * 1024;

const INSERT_NODES = {
  name: 'store_insert_nodes',
  text: `
    INSERT INTO nodes (no, tenant, id, received_at, trace_id, user_index, root, events, first_seen, last_seen, properties)
    SELECT * FROM unnest($1::int8[], $2::int4[], $3::uuid[], $4::int8[], $5::uuid[], $6::int4[], $7::int8[],
      $8::int8[], $9::int8[], $10::int8[], $11::text[])
    ON CONFLICT (id) DO NOTHING`,
};

const UPDATE_NODES = {
  name: 'store_update_nodes',
  text: `
    UPDATE nodes SET events = nodes.events + q.events, first_seen = least(nodes.first_seen, q.first),
      last_seen = greatest(nodes.last_seen, q.last), properties = CASE WHEN q.changes THEN q.properties ELSE nodes.properties END
    FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::bool[], $6::text[])
      AS q (no, events, first, last, changes, properties)
    WHERE nodes.no = q.no`,
};

const READ_PROPERTIES = { name: 'store_read_properties', text: 'SELECT properties FROM nodes WHERE no = $1' };

interface NewRow {
  readonly no: NodeNumber;
  readonly tenant: number;
  readonly id: string;
  readonly origin: Origin;
  readonly root: NodeNumber | null;
  readonly events: number;
  readonly first: number;
  readonly last: number;
  readonly properties: string | null;
}

interface UpdatedRow {
  readonly no: NodeNumber;
  readonly events: number;
  readonly first: number;
  readonly last: number;
  /** Undefined: unchanged. */
  readonly properties: string | null | undefined;
}

/** The users of each tenant, by the node that they went to; `tenant` is its number. */
interface TenantVisits {
  readonly tenant: number;
  readonly batch: TenantBatch;
  readonly visits: Visits;
}

export async function writeNodes(
  client: Queryable,
  tenants: readonly TenantVisits[],
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
  { tenantId, changes }: { readonly tenantId: TenantId; readonly changes: TenantBatch['changes'] },
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
  if (rows.length === 0) return;
  const { rowCount } = await client.query(INSERT_NODES, [
    int8s(rows.map(({ no }) => no)),
    int4s(rows.map(({ tenant }) => tenant)),
    uuids(rows.map(({ id }) => id)),
    int8s(rows.map(({ origin }) => origin.receivedAt)),
    uuids(rows.map(({ origin }) => origin.traceId)),
    int4s(rows.map(({ origin }) => origin.userIndex)),
    int8s(rows.map(({ root }) => root)),
    int8s(rows.map(({ events }) => events)),
    int8s(rows.map(({ first }) => first)),
    int8s(rows.map(({ last }) => last)),
    texts(rows.map(({ properties }) => properties)),
  ]);
  // An id is derived from the origin, so no other writer inserts it meanwhile: a retry would not help.
  if (rowCount < rows.length) throw new Error('a profile of the same request and user is in the store already');
}

async function update(client: Queryable, rows: readonly UpdatedRow[]): Promise<void> {
  if (rows.length === 0) return;
  const { rowCount } = await client.query(UPDATE_NODES, [
    int8s(rows.map(({ no }) => no)),
    int8s(rows.map(({ events }) => events)),
    int8s(rows.map(({ first }) => first)),
    int8s(rows.map(({ last }) => last)),
    booleans(rows.map(({ properties }) => properties !== undefined)),
    texts(rows.map(({ properties }) => properties ?? null)),
  ]);
  if (rowCount !== rows.length) throw new Error(`${rows.length - rowCount} nodes are not in the store`);
}
