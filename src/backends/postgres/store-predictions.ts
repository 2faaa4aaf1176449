/**
 * Predicts what would become of a request (processor/predict.ts): looks up what a writer would look up, with the same
 * statements but without locks, in one read-only transaction. Takes a fixed number of round trips. Properties may be
 * megabytes of each person, so their sizes are read first.
 */

import type { MatchOptions } from '../../identity/match-keys.ts';
import type { LogRecord } from '../../log.ts';
import type { NodeNumber, TenantId } from '../../model.ts';
import {
  completePrediction,
  decidePrediction,
  FIRST_PREDICTED_NODE,
  preparePrediction,
  PROPERTIES_BYTES_MAX,
} from '../../processor/predict.ts';
import type { Prediction } from '../../store.ts';
import type { LookupRequest, LookupResult } from '../../store-writer.ts';
import { storedHashesOf } from './key-secret.ts';
import { readInvalidationStates } from './person-cache.ts';
import type { PostgresClient } from './pool.ts';
import { type NodeColumns, nodesOfProfile, SIZES_BY_NUMBER } from './store-profiles.ts';
import { FirstUses } from './write-first-uses.ts';
import { readGraph } from './write-graph.ts';

/** No tenant has this number: nothing is found for it. */
const UNKNOWN_TENANT = 0;

export interface RequestToPredict {
  /** Undefined for a tenant that never sent anything. */
  readonly tenant: number | undefined;
  readonly tenantId: TenantId;
  readonly records: readonly LogRecord[];
  readonly matchOptions: MatchOptions;
  /** When a job would apply them. */
  readonly appliedAt: number | undefined;
}

/** Within a transaction that sees one snapshot. */
export async function predict(
  client: PostgresClient,
  { tenant = UNKNOWN_TENANT, tenantId, records, matchOptions, appliedAt }: RequestToPredict,
): Promise<Prediction> {
  const prepared = preparePrediction(tenantId, records, matchOptions, appliedAt);
  const decided = decidePrediction(prepared, await lookUp(client, tenant, prepared.lookup));
  const { survivors } = decided;
  if (survivors.length === 0) return completePrediction(decided, [], new Set());
  const { rows } = await client.query<SizedNode>(SIZES_BY_NUMBER, [survivors]);
  const { properties, unread } = await readProperties(client, rows);
  const withProperties = (row: SizedNode): NodeColumns => ({ ...row, properties: properties.get(row.no) ?? null });
  const profiles = Array.from(
    Map.groupBy(rows, ({ root }) => root),
    ([root, nodes]) => nodesOfProfile(root, nodes.map(withProperties)),
  );
  return completePrediction(decided, profiles, unread);
}

interface SizedNode extends NodeColumns {
  /** Size of its properties; null if it has none. */
  readonly bytes: number | null;
}

/** Reads the properties of the first nodes, until `PROPERTIES_BYTES_MAX` is reached. */
async function readProperties(
  client: PostgresClient,
  nodes: readonly SizedNode[],
): Promise<{ readonly properties: ReadonlyMap<NodeNumber, string | null>; readonly unread: Set<NodeNumber> }> {
  const read: NodeNumber[] = [];
  const unread = new Set<NodeNumber>();
  let bytesLeft = PROPERTIES_BYTES_MAX;
  for (const { no, bytes } of nodes.toSorted((a, b) => a.no - b.no)) {
    if (bytesLeft <= 0) unread.add(no);
    else read.push(no);
    bytesLeft -= bytes ?? 0;
  }
  const { rows } = await client.query<{ no: NodeNumber; properties: string | null }>(
    'SELECT no, properties FROM nodes WHERE no = ANY($1)',
    [read],
  );
  return { properties: new Map(rows.map(({ no, properties }) => [no, properties])), unread };
}

async function lookUp(client: PostgresClient, tenant: number, request: LookupRequest): Promise<LookupResult> {
  const lookup = { tenant, request, nextNode: FIRST_PREDICTED_NODE };
  const snapshot = await readGraph(client, lookup);
  const invalidations = await readInvalidationStates(client, [tenant]);
  const firstUses = new FirstUses(await storedHashesOf(client));
  const [result] = await firstUses.lookUp(client, [lookup], [snapshot], invalidations);
  if (result === undefined) throw new Error('a lookup has no result');
  return result;
}
