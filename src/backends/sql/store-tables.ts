/**
 * The tables of the store that SQLite and PostgreSQL have alike: merges and what refuses them, sums (counts, ledger,
 * receipts, profiles, violations), how far the logs were processed, rejections, dead letters and the audit. What is read
 * and written per event or per person (nodes, identifiers, events, records, first uses) is in the schema of each engine.
 * Times are milliseconds since 1970.
 *
 * `shard`: on PostgreSQL, writers that run in parallel keep rows of sums of their own, and readers add them up; on SQLite
 * it is always 0. `log`: several logs may come into one PostgreSQL database; on SQLite it is always `LOCAL_LOG`.
 */

import type { ForeignFormat, KeyKind, NodeNumber, TenantId } from '../../model.ts';
import type { AuditRow, JobKind, JobStatus } from '../../store.ts';
import type { CatalogueKind } from '../../store-writer.ts';
import type { CountedCurrency } from '../../views/currency.ts';
import { LEDGER_SUMS, type LedgerSum } from '../../views/received-sums.ts';
import {
  bytes,
  decimal,
  integer,
  keyedTable,
  nullable,
  number,
  smallInteger,
  sumsTable,
  table,
  type TablesOf,
  text,
  uuid,
  uuidBytes,
  withDefault,
} from './tables.ts';

/** What the one log of an embedded store is called in its tables. */
export const LOCAL_LOG = '';
/**
 * The one shard of an embedded store, and the one that erase, unmerge and retention write to. Only its sums may be
 * below zero.
 */
export const LOCAL_SHARD = 0;

const fromZero = withDefault(integer(), '0');
const ORIGIN = { received_at: integer(), trace_id: uuidBytes(), user_index: smallInteger() };

export const STORE_TABLES = {
  tenants: table({
    no: number,
    id: text<TenantId>('UNIQUE'),
    /** When a person was last erased; 0 for never. Records received later need not be checked. */
    last_erased_at: fromZero,
    /** Erases and unmerges so far; PostgreSQL only. */
    invalidation_count: fromZero,
  }),
  /**
   * The starts of servers on an embedded store (`backends/embedded/store/starts.ts`), which PostgreSQL keeps for a store
   * that was migrated to it: a cursor of arrivals names the start in which it was issued.
   */
  starts: table({ no: number, id: text('UNIQUE'), first_event: integer() }),
  /** The edges of the graph of nodes, with their causes. Both ends are in one profile. */
  merges: table(
    {
      no: number,
      tenant: smallInteger(),
      node_a: integer<NodeNumber>(),
      node_b: integer<NodeNumber>(),
      from_node: integer(),
      into_node: integer(),
      via_type: smallInteger(),
      via_value: text(),
      ...ORIGIN,
    },
    { indexes: { merges_by_node: 'merges (node_a)' } },
  ),
  /** Pairs that an unmerge separated, each in both directions. */
  cannot_link: keyedTable('node_a, node_b', {
    node_a: integer<NodeNumber>(),
    node_b: integer<NodeNumber>(),
    trace_id: uuidBytes(),
    at: integer(),
  }),
  /** Refusals of one kind are counted, not repeated. `node` is where the record went. */
  refusals: keyedTable('node, type, value, reason', {
    node: integer<NodeNumber>(),
    type: smallInteger(),
    value: text(),
    reason: text(),
    raw: text(),
    ...ORIGIN,
    last_at: integer(),
    count: integer(),
  }),
  /**
   * How far each log was processed, by partition. At start, the trace_id of the last record identifies the log.
   * `processed_to` is the position as the processor left it: if an operator moved `position` past it, the records between
   * the two are lost.
   */
  positions: keyedTable('log, partition', {
    log: text(),
    partition: smallInteger(),
    position: integer(),
    processed_to: fromZero,
    last_trace_id: nullable(text()),
  }),
  /** Records of a log that were never processed: given up by an operator, or removed before they were read. */
  lost_records: keyedTable('log, partition, first_position', {
    log: text(),
    partition: smallInteger(),
    first_position: integer(),
    next_position: integer(),
    records: integer(),
    found_at: integer(),
  }),
  /** Events by minute and by hour (`width` in milliseconds) of their own timestamps. */
  counts: sumsTable(70, 'tenant, width, start, event_name, currency, shard', {
    tenant: smallInteger(),
    width: smallInteger(),
    start: integer(),
    event_name: text(),
    /** As in `views/currency.ts`. */
    currency: text<CountedCurrency>(),
    shard: smallInteger(),
    events: integer(),
    revenue: decimal(),
  }),
  /** By hour of receipt: every received user and event is accounted for. */
  ledger: sumsTable(
    50,
    'tenant, hour, shard',
    {
      tenant: smallInteger(),
      hour: integer(),
      shard: smallInteger(),
      ...(Object.fromEntries(LEDGER_SUMS.map((sum) => [sum, fromZero])) as Record<LedgerSum, typeof fromZero>),
    },
    { ledger_by_hour: 'ledger (hour)' },
  ),
  /** Received users and events by minute of receipt, whatever became of them. */
  receipts: sumsTable(70, 'tenant, minute, shard', {
    tenant: smallInteger(),
    minute: integer(),
    shard: smallInteger(),
    users_accepted: integer(),
    users_rejected: integer(),
    events_accepted: integer(),
  }),
  /** How many profiles there are: nodes less merges. One shard alone may be below zero. */
  profile_counts: sumsTable(50, 'tenant, shard', {
    tenant: smallInteger(),
    shard: smallInteger(),
    profiles: integer(),
  }),
  /** What events violated of a tracking plan that warns (`plan-violations.ts`). */
  plan_violations: sumsTable(70, 'tenant, version, event_name, path, message, shard', {
    tenant: smallInteger(),
    version: integer(),
    /** Empty for what is of the user. */
    event_name: text(),
    path: text(),
    message: text(),
    shard: smallInteger(),
    count: integer(),
    first_at: integer(),
    last_at: integer(),
    last_trace_id: text(),
  }),
  rejections: table(
    {
      no: number,
      tenant: smallInteger(),
      received_at: integer(),
      trace_id: uuid(),
      user_index: smallInteger(),
      message: text(),
      reason: text(),
      /** Used for lookups: the reason may be too long for an index. */
      reason_hash: bytes(),
      payload: text(),
      /** Boolean. */
      payload_is_cut: smallInteger(),
      key_id: text(),
      key_kind: text<KeyKind>(),
      /** Null for our own. */
      format: nullable(text<ForeignFormat>()),
      /** As in `views/kept-rejections.ts`. */
      event_names: text(),
      /** When it was fixed and resubmitted, or accepted in a retry. */
      resubmitted_at: nullable(integer()),
      /** The retry of its request in which it was accepted. */
      accepted_by: nullable(uuid()),
    },
    {
      indexes: {
        rejections_by_time: 'rejections (tenant, received_at, no)',
        rejections_by_reason: 'rejections (tenant, reason_hash, received_at, no, resubmitted_at)',
        rejections_by_request: 'rejections (trace_id, user_index)',
      },
    },
  ),
  /** Work on many rejections or dead letters (jobs.ts). */
  jobs: table(
    {
      no: number,
      id: uuid('UNIQUE'),
      tenant: smallInteger(),
      kind: text<JobKind>(),
      status: text<JobStatus>(),
      created_at: integer(),
      /** When its last step was, or when it was resumed: the one that has waited longest is next. */
      stepped_at: integer(),
      finished_at: nullable(integer()),
      /** `Caller`, as JSON. */
      called_by: text(),
      /** JSON. */
      filter: text(),
      /** A JSON Patch; once the job is done, without its values. */
      patch: nullable(text()),
      /** A user that was fixed by hand (`FixedRejection`), as JSON; removed with the last step. */
      fixed: nullable(text()),
      /** The one dead letter that it is about. */
      dead_letter: nullable(integer()),
      /** Behind the last item: time of receipt and number. */
      after_time: integer(),
      after_no: integer(),
      matched: integer(),
      resubmitted: fromZero,
      still_rejected: fromZero,
      already: fromZero,
      cut: fromZero,
      failed: fromZero,
      /** `JobProblem[]`, as JSON; the first few. */
      problems: withDefault(text(), "'[]'"),
    },
    {
      indexes: {
        jobs_by_tenant: 'jobs (tenant, no)',
        jobs_running: "jobs (stepped_at, no) WHERE status = 'running'",
      },
    },
  ),
  /** Records that the processor could not process. */
  dead_letters: table(
    {
      no: number,
      tenant: smallInteger(),
      log: text(),
      partition: smallInteger(),
      position: integer(),
      received_at: integer(),
      trace_id: uuid(),
      failed_at: integer(),
      cause: text(),
      first_user_index: smallInteger(),
      /** Accepted ones. */
      users: integer(),
      events: integer(),
      key_id: text(),
      /** What the record has besides its body (dead-letters.ts), as JSON. */
      header: text(),
      /** Null where it is not kept: too many are, or a retry has stored it. */
      body: nullable(bytes()),
      /** When a retry stored it. */
      retried_at: nullable(integer()),
    },
    {
      constraints: [
        '-- A topic that lost records may have another one at the same position.\nUNIQUE (log, partition, position, trace_id)',
      ],
      indexes: { dead_letters_by_tenant: 'dead_letters (tenant, no)' },
    },
  ),
  /**
   * The catalogue (`views/catalogue.ts`): what is known of an event name, or of what users set on people. The event name
   * '' has the events of all names beyond the bound.
   */
  catalogue_entries: sumsTable(
    70,
    'tenant, kind, name',
    {
      tenant: smallInteger(),
      kind: text<CatalogueKind>(),
      name: text(),
      count: integer(),
      examined: integer(),
      first_seen: integer(),
      last_seen: integer(),
      property_count: smallInteger(),
      key_ids: text(),
      changes: text(),
    },
    { catalogue_entries_by_age: 'catalogue_entries (last_seen)' },
  ),
  /** `examples_at`: when the entry with these examples was last seen; null without any. */
  catalogue_properties: sumsTable(
    70,
    'tenant, kind, name',
    {
      tenant: smallInteger(),
      kind: text<CatalogueKind>(),
      name: text(),
      examples_at: nullable(integer()),
      other_properties: integer(),
      properties: text(),
      examples: text(),
    },
    { catalogue_properties_by_age: 'catalogue_properties (examples_at)' },
  ),
  /** Hashes of erased match keys (`views/tombstone.ts`). Never removed: data received before an erase may be processed late. */
  tombstones: keyedTable('tenant, hash', { tenant: smallInteger(), hash: bytes(), erased_at: integer() }),
  /** Who unmerged, erased, resubmitted or retried what; `detail` is a JSON object without personal data. */
  audit: table(
    {
      no: number,
      tenant: smallInteger(),
      kind: text<AuditRow['kind']>(),
      trace_id: uuid(),
      at: integer(),
      detail: text(),
    },
    { indexes: { audit_by_tenant: 'audit (tenant, no)' } },
  ),
};

export type StoreTables = TablesOf<typeof STORE_TABLES>;
