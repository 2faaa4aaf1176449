/**
 * Predicts what would become of a request (processor/predict.ts): looks up what a writer would look up, with the same
 * statements but without locks, in one read-only transaction. Takes a fixed number of round trips. Properties may be
 * megabytes of each person, so not all of them are read.
 */

import {
  completePrediction,
  decidePrediction,
  FIRST_PREDICTED_NODE,
  preparePrediction,
  PROPERTIES_BYTES_MAX,
} from '../../processor/predict.ts';
import type { Prediction } from '../../store.ts';
import type { LookupRequest, LookupResult } from '../../store-writer.ts';
import { readInvalidationStates } from './person-cache.ts';
import type { PostgresClient } from './pool.ts';
import { NODES_BY_NUMBER, type NodeRow, profileNodesOf } from './store-profiles.ts';
import { FirstUses, storedHashesOf } from './write-first-uses.ts';
import { readGraph } from './write-graph.ts';

/** $1 the numbers of roots. Reads the properties of the first nodes, until there are too many bytes. */
const NODES_WITHIN_BYTES = `
  WITH measured AS (
    SELECT *, coalesce(sum(octet_length(properties)) OVER preceding, 0) < ${PROPERTIES_BYTES_MAX} AS "isRead"
    FROM (${NODES_BY_NUMBER}) AS nodes
    WINDOW preceding AS (ORDER BY node ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
  )
  SELECT node, root, id, origin, events, "firstSeen", "lastSeen", "isRead",
    CASE WHEN "isRead" THEN properties END AS properties
  FROM measured`;

/** No tenant has this number: nothing is found for it. */
const UNKNOWN_TENANT = 0;

/** Within a transaction that sees one snapshot. `tenant` is undefined for one that never sent anything. */
export async function predict(
  client: PostgresClient,
  tenant: number | undefined,
  ...request: Parameters<typeof preparePrediction>
): Promise<Prediction> {
  const prepared = preparePrediction(...request);
  const decided = decidePrediction(prepared, await lookUp(client, tenant ?? UNKNOWN_TENANT, prepared.lookup));
  const { roots } = decided;
  if (roots.length === 0) return completePrediction(decided, [], new Set());
  const { rows } = await client.query<NodeRow & { readonly isRead: boolean }>(NODES_WITHIN_BYTES, [roots]);
  const profiles = Array.from(Map.groupBy(rows, ({ root }) => root).values(), profileNodesOf);
  return completePrediction(decided, profiles, new Set(rows.flatMap(({ node, isRead }) => (isRead ? [] : [node]))));
}

async function lookUp(client: PostgresClient, tenant: number, request: LookupRequest): Promise<LookupResult> {
  const lookup = { tenant, request, nextNode: FIRST_PREDICTED_NODE };
  const snapshot = await readGraph(client, lookup);
  const invalidations = await readInvalidationStates(client, [tenant]);
  const firstUses = new FirstUses(await storedHashesOf(client));
  const [result] = await firstUses.lookUp(client, [{ ...lookup, snapshot }], invalidations);
  if (result === undefined) throw new Error('a lookup has no result');
  return result;
}
