/**
 * Example requests and answers for the OpenAPI document and the docs page. They belong together: the answers are what
 * the server says to these very requests (trace_ids aside), and tests send them through the validator to prove it.
 */

import { ERRORS } from '../errors.ts';

export const TRACE_ID = '019a8267-8f3a-7c41-9d0e-5b6a7f21c3de';

/** When the request of `TRACE_ID` was received. */
export const AT = '2026-11-14T09:30:01.210Z';

/** One user that is fine, one without an identifier. */
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

export const PARTLY_VALID_ANSWER = {
  trace_id: TRACE_ID,
  users_accepted: 1,
  users_rejected: 1,
  errors: [{ userIndex: 1, message: NO_IDENTIFIER }],
};

export const SMALL_REQUEST = {
  users: [{ identifiers: { user_id: 'u-1042' }, events: [{ event_name: 'signed_up' }] }],
};

export const SMALL_ANSWER = { trace_id: TRACE_ID, users_accepted: 1, users_rejected: 0, errors: [] };

export const ALL_INVALID_REQUEST = { users: [{ identifiers: { user_id: 'u-1042' }, events: [] }] };

export const ALL_INVALID_ANSWER = {
  error: ERRORS.validation_failed.text,
  trace_id: TRACE_ID,
  errors: [{ userIndex: 0, message: 'events array is required and must not be empty' }],
};

export const UNUSABLE_REQUEST = { users: [] };

export const UNUSABLE_ANSWER = {
  error: ERRORS.validation_failed.text,
  trace_id: TRACE_ID,
  errors: [],
  message: 'users must not be empty',
};
