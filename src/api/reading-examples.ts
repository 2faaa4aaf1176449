/**
 * Example answers of what is read back, for the OpenAPI document and the docs page. They tell one story: someone
 * looked around without a name, Ada placed an order, and when she signed in it turned out that the two are one person. Tests check them against their schemas.
 */

import { AT, NO_IDENTIFIER, TRACE_ID } from './examples.ts';

const PROFILE_ID = '019a8262-f0d8-83b1-a1c5-7d20f4e6b98a';
const MERGED_ID = '019a8267-8e10-8f44-b2d9-31c06a58e7f2';
const ANON_TRACE_ID = '019a8262-f0d8-7a19-8b3e-90c4d1f2a6b7';
const LOGIN_TRACE_ID = '019a8268-7b04-7e5d-a6c1-2f80b93d47ea';
const ACT_TRACE_ID = '019a8299-41c0-7d02-94aa-6e5f3b7c1d08';
const LOGIN_AT = '2026-11-14T09:31:02.020Z';
const ANON_AT = '2026-11-14T09:25:00.312Z';
const KEY_ID = 'key_7Hq2mZx04LbT';

export const PROFILE = {
  id: PROFILE_ID,
  merged_ids: [MERGED_ID],
  identifiers: { user_id: ['u-1042'], email: ['ada@example.com'], phone_number: [], anon_id: ['anon-7f3c'] },
  profile_fields: { city: 'Lisbon', country: 'PT', first_name: 'Ada' },
  user_properties: { newsletter: true, plan: 'pro' },
  first_seen: ANON_AT,
  last_seen: LOGIN_AT,
  event_count: 4,
};

export const PROFILE_MATCHES = {
  profiles: [{ matched: ['email', 'name'], profile: PROFILE }],
  next_cursor: null,
  is_partial: false,
};

export const PROFILE_COUNT = { profiles: 3 };

export const PROFILE_WITH_PROVENANCE = {
  ...PROFILE,
  profile_fields: { city: 'Lisbon' },
  user_properties: { plan: 'pro' },
  provenance: {
    profile_fields: { city: { value: 'Lisbon', trace_id: TRACE_ID, received_at: AT } },
    user_properties: { plan: { value: 'pro', trace_id: TRACE_ID, received_at: AT } },
  },
};

const EVENT = {
  id: `${TRACE_ID}.0.0`,
  event_name: 'order_completed',
  timestamp: '2026-11-14T09:30:00.000Z',
  received_at: AT,
  revenue: 49.9,
  event_value: null,
  properties: { currency: 'EUR', order_id: 'A-10018' },
  profile_id: PROFILE_ID,
  trace_id: TRACE_ID,
  userIndex: 0,
  key_id: KEY_ID,
};

export const EVENT_PAGE = { events: [EVENT], next_cursor: null };
export const EVENT_PAGE_WITH_PERSON = {
  events: [{ ...EVENT, person: { id: PROFILE_ID, name: 'Ada', identifiers: PROFILE.identifiers } }],
  next_cursor: null,
};
export const ARRIVALS = { events: [EVENT], last: 'MTcz' };

const MERGE = {
  from: MERGED_ID,
  into: PROFILE_ID,
  via: { type: 'anon_id', value: 'anon-7f3c' },
  nodes: [PROFILE_ID, MERGED_ID],
  trace_id: LOGIN_TRACE_ID,
  userIndex: 0,
  at: LOGIN_AT,
};

export const IDENTITY = {
  identifiers: [
    {
      type: 'anon_id',
      value: 'anon-7f3c',
      node: PROFILE_ID,
      first_trace_id: ANON_TRACE_ID,
      userIndex: 0,
      first_seen: ANON_AT,
    },
    { type: 'user_id', value: 'u-1042', node: MERGED_ID, first_trace_id: TRACE_ID, userIndex: 0, first_seen: AT },
    {
      type: 'email',
      value: 'ada@example.com',
      node: MERGED_ID,
      first_trace_id: TRACE_ID,
      userIndex: 0,
      first_seen: AT,
    },
  ],
  merges: [MERGE],
  refusals: [],
};

export const IDENTITY_WITH_CHAIN = {
  ...IDENTITY,
  chain: [
    {
      kind: 'link',
      type: 'anon_id',
      value: 'anon-7f3c',
      node: PROFILE_ID,
      trace_id: ANON_TRACE_ID,
      userIndex: 0,
      at: ANON_AT,
      text: `anon_id anon-7f3c was first seen on ${ANON_AT}, in users[0] of request ${ANON_TRACE_ID}, and belongs to ${PROFILE_ID} since.`,
    },
    {
      kind: 'merge',
      ...MERGE,
      text: `On ${LOGIN_AT}, users[0] of request ${LOGIN_TRACE_ID} had anon_id anon-7f3c, which belongs to ${PROFILE_ID}, beside an identifier of ${MERGED_ID}: so the two are one person, and ${MERGED_ID} was merged into ${PROFILE_ID}.`,
    },
    {
      kind: 'link',
      type: 'user_id',
      value: 'u-1042',
      node: MERGED_ID,
      trace_id: TRACE_ID,
      userIndex: 0,
      at: AT,
      text: `user_id u-1042 was first seen on ${AT}, in users[0] of request ${TRACE_ID}, and belongs to ${MERGED_ID} since.`,
    },
  ],
};

export const UNMERGE_REQUEST = { trace_id: TRACE_ID };
export const UNMERGED = { trace_id: ACT_TRACE_ID, undone: 1, profile_ids: [PROFILE_ID, MERGED_ID] };
export const ERASED = { trace_id: ACT_TRACE_ID };

export const COUNTS = {
  buckets: [
    {
      start: '2026-11-14T09:00:00.000Z',
      event_name: 'order_completed',
      events: 3,
      revenue: [
        { currency: 'EUR', events: 2, revenue: 79.8 },
        { currency: 'USD', events: 1, revenue: 25 },
      ],
    },
    { start: '2026-11-14T09:00:00.000Z', event_name: 'page_viewed', events: 2, revenue: [] },
    { start: '2026-11-14T09:00:00.000Z', event_name: 'signed_in', events: 1, revenue: [] },
  ],
};

const ACCEPTED_USER = { userIndex: 0, status: 'accepted', profile_id: PROFILE_ID, events: 2 };
const REJECTED_USER = { userIndex: 1, status: 'rejected', profile_id: null, events: 0, merged: [], warnings: [] };

export const TRACE_PAGE = {
  traces: [
    {
      trace_id: TRACE_ID,
      status: 'processed',
      received_at: AT,
      processed_at: '2026-11-14T09:30:01.248Z',
      users_accepted: 1,
      users_rejected: 1,
      events: 2,
      duplicate_of: null,
      key_id: KEY_ID,
    },
  ],
  next_cursor: null,
};

export const TRACE = {
  trace_id: TRACE_ID,
  status: 'processed',
  received_at: AT,
  processed_at: '2026-11-14T09:30:01.248Z',
  users_accepted: 1,
  users_rejected: 1,
  duplicate_of: null,
  key_id: KEY_ID,
  users: [
    { ...ACCEPTED_USER, merged: [], warnings: [], message: null },
    { ...REJECTED_USER, message: NO_IDENTIFIER },
  ],
};

export const RECEIPTS = {
  minutes: [
    { start: '2026-11-14T09:25:00.000Z', users_accepted: 1, users_rejected: 0, events_accepted: 1 },
    { start: '2026-11-14T09:30:00.000Z', users_accepted: 1, users_rejected: 1, events_accepted: 2 },
    { start: '2026-11-14T09:31:00.000Z', users_accepted: 1, users_rejected: 0, events_accepted: 1 },
  ],
};

const BOOKS = { duplicates: 0, erased: 0, expired: 0, set_aside: 0, pending: 0, difference: 0 };
const USERS = { received: 3, stored: 3, ...BOOKS };
const EVENTS = { received: 4, stored: 4, ...BOOKS };

export const LEDGER = {
  balanced: true,
  missing_records: 0,
  lost_records: 0,
  hours: [{ hour: '2026-11-14T09:00:00.000Z', users: USERS, events: EVENTS, users_rejected: 1 }],
  totals: { users: USERS, events: EVENTS },
};

export const AUDIT_PAGE = {
  acts: [{ kind: 'erase', trace_id: ACT_TRACE_ID, at: '2026-11-14T10:24:40.128Z', detail: { profile_id: PROFILE_ID } }],
  next_cursor: null,
};
