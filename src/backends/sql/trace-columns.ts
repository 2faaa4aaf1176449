/**
 * The columns of records that traces are read from, named as in `TracedRecord` and `SummarisedRecord` (`views/trace.ts`).
 * The rest of a trace is read per engine.
 */

export const TRACE_COLUMNS = `received_at AS "receivedAt", processed_at AS "processedAt",
  first_user_index AS "firstUserIndex", users_accepted AS "usersAccepted", users_rejected AS "usersRejected", events,
  duplicate_of AS "duplicateOf", key_id AS "keyId"`;
