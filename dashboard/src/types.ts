/**
 * What the server answers, field by field, as the page reads it. The names are those of the HTTP API; a description of
 * each is at /docs of the server. Values that clients chose (properties, payloads) are `unknown`: show them with `Json`
 * or as text, never as anything else. Numbers among them that a double cannot hold are `ExactNumber` (exact-json.ts).
 * What is about people is in `types-people.ts`, and given on from here.
 */

export const ENVIRONMENTS = ['production', 'development'] as const;
export type Environment = (typeof ENVIRONMENTS)[number];

export * from './types-people.ts';

import type { Person } from './types-people.ts';

// Signing in, members, invitations.

export interface Session {
  readonly member: { readonly id: string; readonly email: string };
  readonly account: { readonly id: string; readonly name: string };
  readonly environments: readonly Environment[];
  readonly server: { readonly url: string; readonly version: string };
}

export interface InvitationLook {
  readonly kind: 'first' | 'invitation' | 'reset';
  readonly account_name: string;
  readonly email: string | null;
  readonly expires_at: string;
}

export interface Member {
  readonly id: string;
  readonly email: string;
  readonly created_at: string;
  readonly last_signed_in_at: string | null;
  readonly is_you: boolean;
}

export interface Invitation {
  readonly id: string;
  readonly email: string | null;
  readonly created_at: string;
  readonly expires_at: string;
}

export interface Members {
  readonly members: readonly Member[];
  readonly invitations: readonly Invitation[];
}

export interface InvitationMade {
  readonly id: string;
  readonly email: string;
  readonly link: string;
  readonly expires_at: string;
}

// Keys.

export type KeyKind = 'secret' | 'publishable';

export interface ApiKey {
  readonly id: string;
  readonly name: string;
  readonly kind: KeyKind;
  readonly environment: Environment;
  readonly prefix: string;
  readonly last_four: string;
  readonly origins: readonly string[];
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly revoked_at: string | null;
  readonly last_used_at: string | null;
  readonly leak_suspected_at: string | null;
  readonly leak_origin: string | null;
  readonly state: 'active' | 'expired' | 'revoked';
  readonly is_unused: boolean;
}

export interface Keys {
  readonly keys: readonly ApiKey[];
}

export interface KeyMade {
  readonly key: string;
  readonly row: ApiKey;
}

export interface KeyRolled extends KeyMade {
  readonly old: ApiKey;
}

// What happened.

/** An event as it is stored. Not the browser's: a file that needs both gives this one another name. */
export interface Event {
  readonly id: string;
  readonly event_name: string;
  readonly timestamp: string;
  readonly received_at: string;
  readonly revenue: number | null;
  readonly event_value: number | null;
  readonly properties: Readonly<Record<string, unknown>>;
  readonly profile_id: string | null;
  readonly trace_id: string;
  readonly userIndex: number;
  readonly key_id: string | null;
  /** With `include=person`. */
  readonly person?: Person | null;
}

export interface EventPage {
  readonly events: readonly Event[];
  readonly next_cursor: string | null;
}

/** The answer to `/events?after=`. */
export interface Arrivals {
  readonly events: readonly Event[];
  readonly last: string;
}

export interface CountBucket {
  readonly start: string;
  readonly event_name?: string;
  readonly events: number;
  readonly revenue: readonly CurrencySum[];
}

/** Revenue of events in one currency. */
export interface CurrencySum {
  /** A code of three letters, `other`, or null for revenue without a currency. */
  readonly currency: string | null;
  readonly events: number;
  /** Null for `other`. */
  readonly revenue: number | null;
}

export interface Counts {
  readonly buckets: readonly CountBucket[];
}

export interface ReceiptMinute {
  readonly start: string;
  readonly users_accepted: number;
  readonly users_rejected: number;
  readonly events_accepted: number;
}

export interface Receipts {
  readonly minutes: readonly ReceiptMinute[];
}

/** The data of `event: skipped` on `/live`. */
export interface LiveSkipped {
  readonly events: number;
}

// Requests.

export interface TracedUser {
  readonly userIndex: number;
  readonly status: 'accepted' | 'rejected';
  readonly profile_id: string | null;
  readonly events: number;
  readonly duplicate_events?: number;
  readonly merged: readonly { readonly from: string; readonly into: string }[];
  readonly warnings: readonly string[];
  readonly message: string | null;
  readonly person?: Person | null;
}

export interface TraceSummary {
  readonly trace_id: string;
  readonly status: 'pending' | 'processed';
  readonly received_at: string;
  readonly processed_at: string | null;
  readonly users_accepted: number;
  readonly users_rejected: number;
  readonly events: number;
  readonly duplicate_of: string | null;
  readonly key_id: string | null;
}

export interface TracePage {
  readonly traces: readonly TraceSummary[];
  readonly next_cursor: string | null;
}

export interface Trace extends Omit<TraceSummary, 'events'> {
  readonly users: readonly TracedUser[];
}

export interface Rejection {
  readonly trace_id: string;
  readonly userIndex: number;
  readonly received_at: string;
  readonly message: string;
  readonly reason: string;
  readonly payload: unknown;
  readonly payload_is_cut: boolean;
}

export interface RejectionPage {
  readonly rejections: readonly Rejection[];
  readonly next_cursor: string | null;
}

export interface RejectionReason {
  readonly reason: string;
  readonly users: number;
  readonly last_at: string;
  readonly trace_id: string;
  readonly userIndex: number;
}

export interface RejectionReasons {
  readonly reasons: readonly RejectionReason[];
}

// The server itself.

export interface Books {
  readonly received: number;
  readonly stored: number;
  readonly duplicates: number;
  readonly erased: number;
  readonly expired: number;
  readonly set_aside: number;
  readonly pending: number;
  readonly difference: number;
}

export interface LedgerHour {
  readonly hour: string;
  readonly users: Books;
  readonly events: Books;
  readonly users_rejected: number;
}

export interface Ledger {
  readonly balanced: boolean;
  readonly missing_records: number;
  readonly lost_records: number;
  readonly hours: readonly LedgerHour[];
  readonly totals: { readonly users: Books; readonly events: Books };
}

export interface AuditAct {
  readonly kind: string;
  readonly trace_id: string;
  readonly at: string;
  readonly detail: unknown;
}

export interface AuditPage {
  readonly acts: readonly AuditAct[];
  readonly next_cursor: string | null;
}

export interface Setting {
  readonly name: string;
  readonly value: string | number | boolean | null;
  readonly default: string | number | boolean | null;
  readonly source: 'default' | 'environment' | 'flag';
  readonly description: string;
}

export interface Health {
  readonly status: 'ready' | 'not ready';
  readonly reasons: readonly string[];
  /** What the start found. */
  readonly warnings: readonly string[];
  readonly version: string;
  readonly node: string;
  readonly started_at: string;
  readonly backlog_bytes: number;
  readonly backlog_bytes_max: number;
  /** Null on a server that processes nothing. */
  readonly lag_seconds: number | null;
  /** Null on a server that keeps nothing on its disk. */
  readonly disk_free_bytes: number | null;
  readonly disk_free_bytes_min: number;
  readonly last_backup_at: string | null;
  /** How far the clock is ahead because it is not believed; 0 while it is. */
  readonly clock_held_seconds: number;
  /** How far the clock is behind the newest time of receipt. */
  readonly clock_behind_seconds: number;
  readonly memory_bytes: number;
  /** Null on a server that processes nothing. */
  readonly ledger_difference: number | null;
  /** Null on a server that processes nothing. */
  readonly log_missing_records: number | null;
  readonly log_lost_records: number | null;
  readonly records_set_aside: number;
  /** Under `/ingest/`, of the whole server, since its start. */
  readonly requests: readonly { readonly status: number; readonly requests: number }[];
  readonly edges: number;
  readonly settings: readonly Setting[];
}

/** The answer to `POST /ingest/events`. */
export interface IngestAccepted {
  readonly trace_id: string;
  readonly users_accepted: number;
  readonly users_rejected: number;
  readonly errors: readonly { readonly userIndex: number; readonly message: string }[];
}
