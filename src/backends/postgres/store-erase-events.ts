/**
 * Deletes the events of a person in bounded batches: some thousands of events, and some megabytes of properties that
 * have to be read. The ledger counts users, so a batch consists of whole users and exceeds the limit by at most one.
 * The caller has locked the nodes, so no events are added meanwhile.
 */

import { DAY_MS, type NodeNumber } from '../../model.ts';
import { EVENT_ID_IN_PROPERTIES, eventIdOf } from '../../views/erased-person.ts';
import { HASHED } from '../../views/keyed-hash.ts';
import { hashesOf } from './key-secret.ts';
import type { PostgresClient } from './pool.ts';
import type { RemovedEvent } from './store-removal.ts';

const EVENTS_PER_TRANSACTION_MAX = 20_000;
/** Of properties that name an event id, in bytes. */
const READ_BYTES_MAX = 16 * 1024 * 1024;

export type ErasedEvent = RemovedEvent & { readonly node: NodeNumber };

/** A user of a request, as the range of its events: consecutive numbers, all of one day. */
interface UserRange {
  readonly receivedAt: number;
  readonly processedAt: number;
  readonly userIndex: number;
  readonly firstNo: number;
  readonly lastNo: number;
  readonly events: number;
  /** Of properties that have to be read. */
  readonly bytes: number;
  /** How many events of the person were read to find users. */
  readonly picked: number;
}

/** Limits the partitions that the server reads and locks. */
const WITHIN = 'received_at >= $3 AND received_at < $4';
const MAY_HAVE_EVENT_ID = `strpos(properties, '${EVENT_ID_IN_PROPERTIES}') > 0`;

/** $1 nodes, $2 how many, $3 and $4 days. Through the records: events are indexed by number, not by trace. */
export const USERS_SQL = `
  WITH sample AS MATERIALIZED (
    SELECT received_at, trace_id, user_index FROM events WHERE node = ANY($1) AND ${WITHIN} LIMIT $2
  ), asked AS MATERIALIZED (
    SELECT DISTINCT received_at, trace_id, user_index FROM sample
  ), found AS MATERIALIZED (
    SELECT DISTINCT record.* FROM asked CROSS JOIN LATERAL (
      SELECT received_at, processed_at, first_event, events FROM records
      WHERE received_at = asked.received_at AND ${WITHIN} AND trace_id = asked.trace_id
        AND first_user_index <= asked.user_index
        -- The record of a resubmitted user takes one away from the rejected ones.
        AND asked.user_index < first_user_index + users_accepted + greatest(users_rejected, 0)
      -- One by one: joined, the planner may read all of a day's index.
      OFFSET 0
    ) AS record
  )
  SELECT found.received_at AS "receivedAt", found.processed_at AS "processedAt", e.*,
    (SELECT count(*) FROM sample) AS picked
  FROM found CROSS JOIN LATERAL (
    SELECT user_index AS "userIndex", min(no) AS "firstNo", max(no) AS "lastNo", count(*) AS events,
      coalesce(sum(octet_length(properties)) FILTER (WHERE ${MAY_HAVE_EVENT_ID}), 0)::bigint AS bytes
    FROM events
    WHERE received_at = found.received_at AND ${WITHIN} AND node = ANY($1)
      AND no >= found.first_event AND no < found.first_event + found.events
    GROUP BY user_index
  ) AS e
  ORDER BY found.received_at, e."firstNo" LIMIT $2`;

/** $1 nodes, $2 to $6 users, $7 and $8 days. */
export const DELETE_SQL = `
  DELETE FROM events AS e
  USING unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::integer[], $6::bigint[])
    AS u (received_at, first_no, last_no, user_index, processed_at)
  WHERE e.received_at = u.received_at AND e.no >= u.first_no AND e.no <= u.last_no AND e.user_index = u.user_index
    AND e.node = ANY($1) AND e.received_at >= $7 AND e.received_at < $8
  RETURNING e.no, e.node, e.timestamp, e.received_at AS "receivedAt", u.processed_at AS "processedAt", e.trace_id AS "traceId",
    e.user_index AS "userIndex", e.event_name AS name, e.revenue, e.currency,
    CASE WHEN ${MAY_HAVE_EVENT_ID} THEN e.properties END AS properties`;

/** For the rest of the transaction: force index scans, since the planner cannot know how small a batch is. */
export const BY_INDEX = `
  SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off`;

type DeletedColumns = ErasedEvent & {
  readonly no: number;
  readonly processedAt: number;
  readonly properties: string | null;
};

/** Days of receipt: first (inclusive) to end (exclusive). */
export interface Days {
  readonly first: number;
  readonly end: number;
}

/** Removed events, in the order of the log; `isLast` when these nodes have none left in these days. */
export async function eraseEvents(
  client: PostgresClient,
  tenant: number,
  nodes: readonly NodeNumber[],
  days: Days,
): Promise<{ readonly events: readonly ErasedEvent[]; readonly isLast: boolean }> {
  await client.query(BY_INDEX);
  const within = [days.first * DAY_MS, days.end * DAY_MS];
  const { rows: users } = await client.query<UserRange>(USERS_SQL, [nodes, EVENTS_PER_TRANSACTION_MAX, ...within]);
  const chosen = pieceOf(users);
  const picked = users[0]?.picked ?? 0;
  const isLast = chosen.length === users.length && Math.max(picked, users.length) < EVENTS_PER_TRANSACTION_MAX;
  if (chosen.length === 0) return { events: [], isLast };
  const { rows } = await client.query<DeletedColumns>(DELETE_SQL, [
    nodes,
    chosen.map(({ receivedAt }) => receivedAt),
    chosen.map(({ firstNo }) => firstNo),
    chosen.map(({ lastNo }) => lastNo),
    chosen.map(({ userIndex }) => userIndex),
    chosen.map(({ processedAt }) => processedAt),
    ...within,
  ]);
  await forgetEventIds(client, tenant, rows);
  return { events: rows.sort((a, b) => a.no - b.no), isLast };
}

/** At least one user, and more as far as they fit. */
function pieceOf(users: readonly UserRange[]): readonly UserRange[] {
  let events = 0;
  let bytes = 0;
  const end = users.findIndex((user) => {
    events += user.events;
    bytes += user.bytes;
    return events > EVENTS_PER_TRANSACTION_MAX || bytes > READ_BYTES_MAX;
  });
  return end === -1 ? users : users.slice(0, Math.max(1, end));
}

/**
 * Rule 17: data after an erase starts from scratch, so it is no duplicate of removed events. An id that another request
 * has used since stays. What a job applied has used its ids when it was processed.
 */
async function forgetEventIds(client: PostgresClient, tenant: number, rows: readonly DeletedColumns[]): Promise<void> {
  const hashOf = await hashesOf(client);
  const ids = rows.flatMap(({ properties, receivedAt, processedAt }) => {
    const id = properties === null ? undefined : eventIdOf(properties);
    return id === undefined ? [] : [{ ...hashOf(tenant, HASHED.eventId, id), receivedAt, processedAt }];
  });
  if (ids.length === 0) return;
  ids.sort((a, b) => a.hash - b.hash || a.rest - b.rest);
  await client.query(
    `DELETE FROM event_ids
     USING unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[]) AS q (hash, rest, received_at, processed_at)
     WHERE event_ids.hash = q.hash AND event_ids.rest = q.rest
       AND event_ids.received_at IN (q.received_at, q.processed_at)`,
    [
      ids.map(({ hash }) => hash),
      ids.map(({ rest }) => rest),
      ids.map(({ receivedAt }) => receivedAt),
      ids.map(({ processedAt }) => processedAt),
    ],
  );
}
