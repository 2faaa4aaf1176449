/**
 * The glossary, and the types that every module shares. One word per thing, everywhere: in code, SQL, API and docs.
 *
 * - **account**: who owns the data; has keys.
 * - **environment**: `production` or `development`. An account has both.
 * - **tenant**: the pair (account, environment). No data crosses tenants.
 * - **key**: an API key. Secret keys may do everything, publishable ones may only write events.
 * - **request**: one HTTP call to `POST /ingest/events`, carrying one or more users.
 * - **trace**: what became of one request; named by its `trace_id`.
 * - **user**: one entry of a request's `users` array: identifiers, user_properties, events.
 * - **rejection**: a user that failed validation, with the reason.
 * - **entry**: what the edge appends to the log: one request, as bytes, with its rejections.
 * - **record**: what is read back from the log: a run of users of one request, at a position.
 * - **partition**: an independent, ordered part of the log. **position**: a place in one partition.
 * - **segment**: a file holding a contiguous run of records of one partition.
 *
 * This file imports nothing and does nothing.
 */

export const ENVIRONMENTS = ['production', 'development'] as const;
export type Environment = (typeof ENVIRONMENTS)[number];

export const KEY_KINDS = ['secret', 'publishable'] as const;
export type KeyKind = (typeof KEY_KINDS)[number];

/** `<account id>/<environment>`; opaque everywhere but here. */
export type TenantId = string;

export function tenantOf(accountId: string, environment: Environment): TenantId {
  return `${accountId}/${environment}`;
}

/** A user that failed validation: where it stood in the request, and the first rule that it broke. */
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
  idempotencyKeyCharactersMax: 255,
  eventIdCharactersMax: 255,
} as const;

/** The four fields of `identifiers` that name a person, strongest first. All other fields are profile fields. */
export const IDENTIFIER_TYPES = ['user_id', 'email', 'phone_number', 'anon_id'] as const;
export type IdentifierType = (typeof IDENTIFIER_TYPES)[number];
