/**
 * The glossary, and the types that every module shares. One word per thing, everywhere: in code, SQL, API and docs.
 *
 * - **account**: who owns the data; has keys.
 * - **environment**: `production` or `development`. An account has both.
 * - **tenant**: the pair (account, environment). No data crosses tenants.
 * - **key**: an API key. Secret keys may do everything in their environment except
 *   manage keys and members, publishable ones may only send events.
 * - **member**: a person who signs in to the dashboard; of one account. **session**: a signed-in browser.
 * - **invitation**: a one-time link with which a member is made, or sets a new password.
 * - **request**: one HTTP call that sends one or more users (`/ingest/events`, `/ingest/v1/…`).
 * - **trace**: what became of one request; named by its `trace_id`.
 * - **user**: one entry of a request's `users` array: identifiers, user_properties, events.
 * - **rejection**: a user that failed validation, with the reason.
 * - **entry**: what the edge appends to the log: one request, as bytes, with its rejections.
 * - **record**: what is read back from the log: consecutive users of one request, at a position.
 * - **partition**: an independent, ordered part of the log. **position**: the number of a record in one partition.
 * - **segment**: a file with consecutive records of one partition.
 * - **origin**: where something came from: (received_at, trace_id, userIndex). Origins are ordered; "newer" means by it.
 * - **match key**: an identifier, normalised: what people are matched by. Junk values make no match key.
 * - **node**: what a match key points to permanently: the profile it was first seen on. Has an internal number and a
 *   public id.
 * - **profile**: a root node with all nodes aliased to it; its id is the root's. **alias**: node → root.
 * - **merge**: two nodes found to be one person, with the request that joined them. The older root survives.
 * - **backlog**: records in the log that are not processed yet. **batch**: records that are processed together.
 * - **first use**: when an `Idempotency-Key` or `$event_id` was first received: a later use is a duplicate.
 * - **delta**: what a transaction adds to a node: events, first and last seen, property updates.
 * - **dead letter**: a record that the processor could not process, kept with its cause.
 * - **ledger**: per hour, what became of everything that was received; all of it is accounted for.
 * - **catalogue**: which event names and properties a tenant's events have, with types, shares and examples.
 * - **refusal**: a link or merge that a rule forbade, with the rule.
 * - **property update**: what a user sets on a person: profile fields and user_properties. For each name the newest
 *   origin wins.
 * - **tombstone**: the hash of an erased match key, with the time: older data does not bring it back.
 * - **role**: what a server does of all this: `edge` receives events, `processor` processes them, `api` serves
 *   everything else, `all` does all of it.
 *
 * This file imports nothing and does nothing.
 */

export const ENVIRONMENTS = ['production', 'development'] as const;
export type Environment = (typeof ENVIRONMENTS)[number];

export const ROLES = ['all', 'edge', 'processor', 'api'] as const;
export type Role = (typeof ROLES)[number];

export const KEY_KINDS = ['secret', 'publishable'] as const;
export type KeyKind = (typeof KEY_KINDS)[number];

/** The format of a request's body: our own, or that of Segment's SDKs, which the edge converts to our own. */
export const FORMATS = ['sluice', 'segment'] as const;
export type Format = (typeof FORMATS)[number];
/** The format on records; absent for our own. */
export type ForeignFormat = Exclude<Format, 'sluice'>;

/** `<account id>/<environment>`; opaque everywhere but here. */
export type TenantId = string;

export function tenantOf(accountId: string, environment: Environment): TenantId {
  return `${accountId}/${environment}`;
}

export function tenantPartsOf(tenantId: TenantId): { readonly accountId: string; readonly environment: Environment } {
  const at = tenantId.lastIndexOf('/');
  return { accountId: tenantId.slice(0, at), environment: tenantId.slice(at + 1) as Environment };
}

/** A user that failed validation: its index in the request, and the first rule that it broke. */
export interface Rejection {
  readonly userIndex: number;
  readonly message: string;
}

/** Limits of the specification and the contract, with their units. */
export const LIMITS = {
  /** 10 MB, counted as sent and again after decompression. */
  bodyBytesMax: 10_485_760,
  usersPerRequestMax: 1_000,
  identifierCharactersMax: 512,
  eventNameCharactersMax: 512,
  propertyKeyCharactersMax: 512,
  /** Arrays and objects inside one another, within the value of one property. */
  nestingDepthMax: 64,
  idempotencyKeyBytesMax: 255,
  eventIdCharactersMax: 255,
  /** Events that one request may report as dropped by its client. */
  droppedByClientMax: 1_000_000_000,
  /** Limit of the profile fields, and of the user_properties, kept per node; the newest win. */
  namesPerNodeMax: 1_000,
  /**
   * Limit of the deleted user_properties that a node remembers; the newest win. Far more than the others: a value that
   * was deleted may be in a run (sorted-runs/) that is merged long after.
   */
  deletionsPerNodeMax: 10_000,
} as const;

/** The four fields of `identifiers` that identify a person, strongest first. All other fields are profile fields. */
export const IDENTIFIER_TYPES = ['user_id', 'email', 'phone_number', 'anon_id'] as const;
export type IdentifierType = (typeof IDENTIFIER_TYPES)[number];

/** Types of JSON values, in the order in which the catalogue lists them. */
export const VALUE_TYPES = ['string', 'number', 'boolean', 'object', 'array', 'null'] as const;
export type ValueType = (typeof VALUE_TYPES)[number];

/** Where something came from. Ordered by received_at, then trace_id, then userIndex: see `identity/origin.ts`. */
export interface Origin {
  readonly receivedAt: number;
  readonly traceId: string;
  readonly userIndex: number;
}

/** An identifier as people are matched by it. `raw` is what the client wrote. */
export interface MatchKey {
  readonly type: IdentifierType;
  readonly value: string;
  readonly raw: string;
}

export type NormalisedKey = Pick<MatchKey, 'type' | 'value'>;

/** Our own number of a node, small and never reused; the public id is `Node.id`. */
export type NodeNumber = number;

/** Why a link or a merge was refused; rule numbers are those of docs/identity.md. */
export const REFUSAL_REASONS = {
  /** Rule 6: the profile of this identifier has another user_id. */
  other_user_id: 'it belongs to a profile with another user_id',
  /** Rule 7: a limit of identifiers or merged nodes per profile. */
  limit: 'the profile has as many of these as a profile may have',
  /** Rule 8: a publishable key may not join two known people. */
  publishable_key: 'a publishable key may not join known people, nor add identifiers to them',
  /** Rule 16: an unmerge separated them. */
  cannot_link: 'an unmerge separated these two people',
} as const;
export type RefusalReason = keyof typeof REFUSAL_REASONS;
export const REFUSAL_RULES: Readonly<Record<RefusalReason, number>> = {
  other_user_id: 6,
  limit: 7,
  publishable_key: 8,
  cannot_link: 16,
};

export const SECOND_MS = 1_000;
export const MINUTE_MS = 60 * SECOND_MS;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;

/** How long an Idempotency-Key, and how long an `$event_id`, is remembered: by times of receipt. */
export const IDEMPOTENCY_WINDOW_MS = DAY_MS;
export const EVENT_ID_WINDOW_MS = 7 * DAY_MS;
