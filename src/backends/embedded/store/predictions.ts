/**
 * Predicts what would become of a request (processor/predict.ts), on a reader's connection: looks up what the writer
 * would look up, with the same code, in one read transaction. Writes nothing, not even the row of a new tenant.
 */

import type { MatchOptions } from '../../../identity/match-keys.ts';
import type { LogRecord } from '../../../log.ts';
import type { NodeNumber, TenantId } from '../../../model.ts';
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
import { MATCH_KEYS, MatchKeyLookup } from './match-keys.ts';
import { findState, type NodeState, PROFILE_RUNS } from './profile-runs.ts';
import { nodesOf } from './profiles.ts';
import { Tombstones } from './tombstones.ts';

/** No tenant has this number: nothing is found for it. */
const UNKNOWN_TENANT = { no: 0, last_erased_at: 0 };

export class StorePredictions {
  readonly #store: StoreConnection;
  readonly #options: MatchOptions;
  readonly #graph: StoreGraph;
  readonly #firstUses: FirstUseLookup;
  readonly #tombstones: Tombstones;

  constructor(store: StoreConnection, options: MatchOptions) {
    const { hashOf } = store;
    this.#store = store;
    this.#options = options;
    this.#graph = new StoreGraph(store, new MatchKeyLookup(store.runs(MATCH_KEYS), hashOf));
    this.#firstUses = new FirstUseLookup(hashOf, store.runs(EVENT_IDS), store.runs(IDEMPOTENCY_KEYS));
    this.#tombstones = new Tombstones(store);
  }

  /** Within a read transaction. */
  predict(tenantId: TenantId, records: readonly LogRecord[], appliedAt?: number): Prediction {
    const prepared = preparePrediction(tenantId, records, this.#options, appliedAt);
    const decided = decidePrediction(prepared, this.#lookUp(prepared.lookup));
    const unread = new Set<NodeNumber>();
    let bytesLeft = PROPERTIES_BYTES_MAX;
    const readState = (node: NodeNumber): NodeState | undefined => {
      if (bytesLeft <= 0) {
        unread.add(node);
        return findState(this.#store.runs(PROFILE_RUNS), node, 0);
      }
      const state = findState(this.#store.runs(PROFILE_RUNS), node);
      bytesLeft -= state?.properties?.length ?? 0;
      return state;
    };
    const profiles = decided.roots.map((root) => nodesOf(this.#store, root, readState));
    return completePrediction(decided, profiles, unread);
  }

  #lookUp(request: LookupRequest): LookupResult {
    // The writer has changed the file since the last prediction.
    this.#graph.forget();
    const { no, last_erased_at: lastErasedAt } =
      this.#store.get<typeof UNKNOWN_TENANT>('SELECT no, last_erased_at FROM tenants WHERE id = ?', request.tenantId) ??
      UNKNOWN_TENANT;
    return {
      snapshot: this.#graph.snapshot(no, request, FIRST_PREDICTED_NODE),
      lastErasedAt,
      newestUseOfKey: (key) => this.#firstUses.newestUseOfKey(no, key),
      olderUseOfKey: (key, bodyHash) => this.#firstUses.olderUseOfKey(no, key, bodyHash),
      openRejections: (traceId) => this.#store.steps((tables) => openRejectionsOf(tables, no, traceId)),
      eventIds: this.#firstUses.eventIds(no, request.eventIds),
      erasedAt: (key) => this.#tombstones.erasedAt({ no, id: request.tenantId }, key, request.receivedAtMin),
    };
  }
}
