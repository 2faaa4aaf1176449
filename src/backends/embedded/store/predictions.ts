/**
 * Predicts what would become of a request (processor/predict.ts), on a reader's connection: looks up what the writer
 * would look up, with the same code, in one read transaction. Writes nothing, not even the row of a new tenant.
 */

import type { NodeNumber } from '../../../model.ts';
import {
  completePrediction,
  decidePrediction,
  FIRST_PREDICTED_NODE,
  preparePrediction,
  PROPERTIES_BYTES_MAX,
} from '../../../processor/predict.ts';
import type { Prediction } from '../../../store.ts';
import type { LookupRequest, LookupResult } from '../../../store-writer.ts';
import { openRejectionsOf } from '../../sql/rejections.ts';
import type { StoreConnection } from './connection.ts';
import { EVENT_IDS, FirstUseLookup, IDEMPOTENCY_KEYS } from './first-uses.ts';
import { StoreGraph } from './identity-graph.ts';
import { MATCH_KEYS } from './match-keys.ts';
import { findState, type NodeState, PROFILE_RUNS } from './profile-runs.ts';
import { nodesOf } from './profiles.ts';
import { Tombstones } from './invalidations.ts';

/** No tenant has this number: nothing is found for it. */
const UNKNOWN_TENANT = { no: 0, last_erased_at: 0 };

/** Within a read transaction. */
export function predict(store: StoreConnection, ...request: Parameters<typeof preparePrediction>): Prediction {
  const prepared = preparePrediction(...request);
  const decided = decidePrediction(prepared, lookUp(store, prepared.lookup));
  const unread = new Set<NodeNumber>();
  let bytesLeft = PROPERTIES_BYTES_MAX;
  const readState = (node: NodeNumber): NodeState | undefined => {
    if (bytesLeft <= 0) {
      unread.add(node);
      return findState(store.runs(PROFILE_RUNS), node, 0);
    }
    const state = findState(store.runs(PROFILE_RUNS), node);
    bytesLeft -= state?.properties?.length ?? 0;
    return state;
  };
  const profiles = decided.roots.map((root) => nodesOf(store, root, readState));
  return completePrediction(decided, profiles, unread);
}

function lookUp(store: StoreConnection, request: LookupRequest): LookupResult {
  const { no, last_erased_at: lastErasedAt } =
    store.get<typeof UNKNOWN_TENANT>('SELECT no, last_erased_at FROM tenants WHERE id = ?', request.tenantId) ??
    UNKNOWN_TENANT;
  const firstUses = new FirstUseLookup(store.hashOf, store.runs(EVENT_IDS), store.runs(IDEMPOTENCY_KEYS));
  const tombstones = new Tombstones(store);
  return {
    snapshot: new StoreGraph(store, store.runs(MATCH_KEYS)).snapshot(no, request, FIRST_PREDICTED_NODE),
    lastErasedAt,
    newestUseOfKey: (key) => firstUses.newestUseOfKey(no, key),
    olderUseOfKey: (key, bodyHash) => firstUses.olderUseOfKey(no, key, bodyHash),
    openRejections: (traceId) => store.steps((tables) => openRejectionsOf(tables, no, traceId)),
    lastUseOfEventId: (id) => firstUses.lastUseOfEventId(no, id),
    erasedAt: (key) => tombstones.erasedAt({ no, id: request.tenantId }, key, request.receivedAtMin),
  };
}
