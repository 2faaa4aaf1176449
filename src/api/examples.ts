/**
 * Example requests and responses for the OpenAPI document and the docs page, as far as several routes share them. They
 * follow one story: someone looked around without a name, Ada placed an order, and when she signed in it turned out that
 * the two are one person. The responses to ingest requests are what the server sends to these very requests (trace_ids
 * aside), and tests send them through the validator to prove it.
 */

import type { TObject } from 'typebox';
import { ERRORS } from '../errors.ts';
import type { JsonSchema } from './openapi-types.ts';

/** The request with the order, and when it was received. */
export const TRACE_ID = '019a8267-8f3a-7c41-9d0e-5b6a7f21c3de';
export const AT = '2026-11-14T09:30:01.210Z';
export const PROCESSED_AT = '2026-11-14T09:30:01.248Z';
/** The one before it, without a name. */
export const ANON_TRACE_ID = '019a8262-f0d8-7a19-8b3e-90c4d1f2a6b7';
export const ANON_AT = '2026-11-14T09:25:00.312Z';
/** The sign-in after it. */
export const LOGIN_TRACE_ID = '019a8268-7b04-7e5d-a6c1-2f80b93d47ea';
export const LOGIN_AT = '2026-11-14T09:31:02.020Z';
/** An unmerge. */
export const UNMERGE_TRACE_ID = '019a8299-41c0-7d02-94aa-6e5f3b7c1d08';
/** A resubmit of what was rejected. */
export const RESUBMIT_TRACE_ID = '019a829b-7710-7b3c-8d51-0c9e4a62f7b5';
export const RESUBMIT_AT = '2026-11-14T10:27:05.104Z';
export const PROFILE_ID = '019a8262-f0d8-83b1-a1c5-7d20f4e6b98a';
export const MERGED_ID = '019a8267-8e10-8f44-b2d9-31c06a58e7f2';
export const KEY_ID = 'key_7Hq2mZx04LbT';
export const IDENTIFIERS = {
  user_id: ['u-1042'],
  email: ['ada@example.com'],
  phone_number: [],
  anon_id: ['anon-7f3c'],
};

/** One user that is valid, one without an identifier. */
export const PARTLY_VALID_REQUEST = {
  users: [
    {
      identifiers: { user_id: 'u-1042', email: 'ada@example.com', first_name: 'Ada', city: 'Lisbon', country: 'PT' },
      user_properties: { plan: 'pro', newsletter: true },
      events: [
        {
          event_name: 'order_completed',
          timestamp: '2026-11-14T09:30:00Z',
          revenue: 49.9,
          currency: 'EUR',
          order_id: 'A-10018',
        },
        { event_name: 'page_viewed', path: '/orders/A-10018' },
      ],
    },
    {
      identifiers: { first_name: 'Sam' },
      events: [{ event_name: 'page_viewed', path: '/' }],
    },
  ],
};

export const NO_IDENTIFIER = 'at least one identifier is required (user_id, email, phone_number, or anon_id)';

export const PARTLY_VALID_RESPONSE = {
  trace_id: TRACE_ID,
  users_accepted: 1,
  users_rejected: 1,
  errors: [{ userIndex: 1, message: NO_IDENTIFIER }],
};

export const SMALL_REQUEST = {
  users: [{ identifiers: { user_id: 'u-1042' }, events: [{ event_name: 'signed_up' }] }],
};

export const SMALL_RESPONSE = { trace_id: TRACE_ID, users_accepted: 1, users_rejected: 0, errors: [] };

export const ALL_INVALID_REQUEST = { users: [{ identifiers: { user_id: 'u-1042' }, events: [] }] };

export const ALL_INVALID_RESPONSE = {
  error: ERRORS.validation_failed.text,
  trace_id: TRACE_ID,
  errors: [{ userIndex: 0, message: 'events array is required and must not be empty' }],
};

export const UNUSABLE_REQUEST = { users: [] };

export const UNUSABLE_RESPONSE = {
  error: ERRORS.validation_failed.text,
  trace_id: TRACE_ID,
  errors: [],
  message: 'users must not be empty',
};

/** Required members that are not given are zero, false, null or empty. */
export function exampleOf({ properties }: TObject, given: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const members = Object.entries(properties as Record<string, JsonSchema>).map(([name, schema]) => {
    if (Object.hasOwn(given, name) || '~optional' in schema) return [name, given[name]] as const;
    return [name, schema.anyOf ? null : EMPTY[schema.type ?? '']] as const;
  });
  return Object.fromEntries(members.filter(([, value]) => value !== undefined));
}

const EMPTY: Readonly<Record<string, unknown>> = { integer: 0, number: 0, boolean: false, array: [] };
