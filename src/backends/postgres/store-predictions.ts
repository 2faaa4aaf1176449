/**
 * Predicts what would become of a request (processor/predict.ts): looks up what a writer would look up, with the same
 * statements but without locks, in one read-only transaction. Takes a fixed number of round trips.
 */

import type { MatchOptions } from '../../identity/match-keys.ts';
import type { LogRecord } from '../../log.ts';
import type { TenantId } from '../../model.ts';
import {
  completePrediction,
  decidePrediction,
  FIRST_PREDICTED_NODE,
  preparePrediction,
} from '../../processor/predict.ts';
import type { Prediction } from '../../store.ts';
import type { LookupRequest, LookupResult } from '../../store-writer.ts';
import { storedHashesOf } from './key-secret.ts';
import { readInvalidationStates } from './person-cache.ts';
import type { PostgresClient } from './pool.ts';
import { CANDIDATES_BY_NUMBER, nodesByRoot, nodesOfProfile } from './store-profiles.ts';
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
  const nodes = survivors.length === 0 ? [] : await nodesByRoot(client, CANDIDATES_BY_NUMBER, [survivors]);
  return completePrediction(
    decided,
    Array.from(nodes, ([root, rows]) => nodesOfProfile(root, rows)),
  );
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
