/**
 * A record as the rest of the processor works on it: users with match keys, property updates and events, parsed from a
 * log record by `prepare.ts`.
 */

import type { IdentityClaim } from '../identity/graph.ts';
import type { IdentifierType } from '../model.ts';
import type {
  EventToStore,
  PersonKeys,
  RecordHeader,
  RejectionToStore,
  PropertyUpdateToStore,
} from '../store-writer.ts';

export interface PreparedEvent extends EventToStore {
  /** `$event_id`, by which the same event is recognised. */
  readonly eventId: string | null;
}

export interface PreparedUser extends PersonKeys, IdentityClaim {
  readonly junk: readonly IdentifierType[];
  readonly events: readonly PreparedEvent[];
  readonly propertyUpdate: PropertyUpdateToStore | null;
}

export interface PreparedRecord {
  readonly header: RecordHeader;
  readonly users: readonly PreparedUser[];
  readonly rejections: readonly RejectionToStore[];
}
