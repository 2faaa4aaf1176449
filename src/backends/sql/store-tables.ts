/**
 * The tables of the store that SQLite and PostgreSQL have alike: sums (counts, ledger, receipts, profiles, violations), how far the
 * logs were processed, rejections, dead letters and the audit. As types for queries, and as SQL for both engines. What is
 * read and written per event or per person (nodes, identifiers, events, records, first uses) is in the schema of each
 * engine. Times are milliseconds since 1970.
 *
 * `shard`: on PostgreSQL, writers that run in parallel keep rows of sums of their own, and readers add them up; on SQLite
 * it is always 0. `log`: several logs may come into one PostgreSQL database; on SQLite it is always `LOCAL_LOG`.
 */

import type { Generated } from 'kysely';
import type { ForeignFormat, KeyKind, TenantId } from '../../model.ts';
import type { AuditRow, JobKind, JobStatus } from '../../store.ts';
import type { CatalogueKind } from '../../store-writer.ts';
import { OUTCOMES } from '../../views/counts.ts';
import type { CountedCurrency } from '../../views/currency.ts';
import type { EntryRow, PropertiesRow } from '../../views/catalogue.ts';
import type { ColumnTypes } from './account-tables.ts';
import type { SqlQueries } from './database.ts';

/** What the one log of an embedded store is called in its tables. */
export const LOCAL_LOG = '';
/** The one shard of an embedded store. */
export const LOCAL_SHARD = 0;

type Outcome = (typeof OUTCOMES)[number];

export type LedgerSum =
  | `users_${Outcome}`
  | `events_${Outcome}`
  | 'users_rejected'
  | 'users_resubmitted'
  | 'dropped_by_clients';
export const LEDGER_SUMS: readonly LedgerSum[] = [
  ...OUTCOMES.map((outcome) => `users_${outcome}` as const),
  'users_rejected',
  'users_resubmitted',
  ...OUTCOMES.map((outcome) => `events_${outcome}` as const),
  'dropped_by_clients',
];

export interface StoreTables {
  tenants: {
    no: Generated<number>;
    id: TenantId;
    /** When a person was last erased; 0 for never. Records received later need not be checked. */
    last_erased_at: Generated<number>;
  };
  /** Defined in the schema of each engine: see `starts.ts`. */
  starts: { no: Generated<number>; id: string; first_event: number };
  /**
   * How far each log was processed, by partition. At start, the trace_id of the last record identifies the log.
   * `processed_to` is the position as the processor left it: if an operator moved `position` past it, the records between
   * the two are lost.
   */
  positions: {
    log: string;
    partition: number;
    position: number;
    processed_to: Generated<number>;
    last_trace_id: string | null;
  };
  /** Records of a log that were never processed: given up by an operator, or removed before they were read. */
  lost_records: {
    log: string;
    partition: number;
    first_position: number;
    next_position: number;
    records: number;
    found_at: number;
  };
  /** Events by minute and by hour (`width` in milliseconds) of their own timestamps. */
  counts: {
    tenant: number;
    width: number;
    start: number;
    event_name: string;
    /** As in `views/currency.ts`. */
    currency: CountedCurrency;
    shard: number;
    events: number;
    revenue: number;
  };
  /** By hour of receipt: every received user and event is accounted for. */
  ledger: { tenant: number; hour: number; shard: number } & Record<LedgerSum, Generated<number>>;
  /** Received users and events by minute of receipt, whatever became of them. */
  receipts: {
    tenant: number;
    minute: number;
    shard: number;
    users_accepted: number;
    users_rejected: number;
    events_accepted: number;
  };
  /** How many profiles there are: nodes less merges. One shard alone may be below zero. */
  profile_counts: { tenant: number; shard: number; profiles: number };
  /** What events violated of a tracking plan that warns (`plan-violations.ts`). */
  plan_violations: {
    tenant: number;
    version: number;
    /** Empty for what is of the user. */
    event_name: string;
    path: string;
    message: string;
    shard: number;
    count: number;
    first_at: number;
    last_at: number;
    last_trace_id: string;
  };
  rejections: {
    no: Generated<number>;
    tenant: number;
    received_at: number;
    trace_id: string;
    user_index: number;
    message: string;
    reason: string;
    /** Used for look-ups: the reason may be too long for an index. */
    reason_hash: Uint8Array;
    payload: string;
    /** Boolean. */
    payload_is_cut: number;
    key_id: string;
    key_kind: KeyKind;
    /** Null for our own. */
    format: ForeignFormat | null;
    /** As in `views/kept-rejections.ts`. */
    event_names: string;
    /** When it was fixed and resubmitted, or accepted in a retry. */
    resubmitted_at: number | null;
    /** The retry of its request in which it was accepted. */
    accepted_by: string | null;
  };
  /** Work on many rejections or dead letters (jobs.ts). */
  jobs: {
    no: Generated<number>;
    id: string;
    tenant: number;
    kind: JobKind;
    status: JobStatus;
    created_at: number;
    /** When its last step was, or when it was resumed: the one that has waited longest is next. */
    stepped_at: number;
    finished_at: number | null;
    /** `Caller`, as JSON. */
    called_by: string;
    /** JSON. */
    filter: string;
    /** A JSON Patch; once the job is done, without its values. */
    patch: string | null;
    /** A user that was fixed by hand (`FixedRejection`), as JSON; removed with the last step. */
    fixed: string | null;
    /** The one dead letter that it is about. */
    dead_letter: number | null;
    /** Behind the last item: time of receipt and number. */
    after_time: number;
    after_no: number;
    matched: number;
    resubmitted: Generated<number>;
    still_rejected: Generated<number>;
    already: Generated<number>;
    cut: Generated<number>;
    failed: Generated<number>;
    /** `JobProblem[]`, as JSON; the first few. */
    problems: Generated<string>;
  };
  /** Records that the processor could not process. */
  dead_letters: {
    no: Generated<number>;
    tenant: number;
    log: string;
    partition: number;
    position: number;
    received_at: number;
    trace_id: string;
    failed_at: number;
    cause: string;
    first_user_index: number;
    /** Accepted ones. */
    users: number;
    events: number;
    key_id: string;
    /** What the record has beside its body (dead-letters.ts), as JSON. */
    header: string;
    /** Null where it is not kept: too many are, or a retry has stored it. */
    body: Uint8Array | null;
    /** When a retry stored it. */
    retried_at: number | null;
  };
  /**
   * The catalogue (`views/catalogue.ts`): what is known of an event name, or of what users set on people. The event name
   * '' has the events of all names beyond the bound.
   */
  catalogue_entries: { tenant: number; kind: CatalogueKind; name: string } & EntryRow;
  /** `examples_at`: when the entry with these examples was last seen; null without any. */
  catalogue_properties: {
    tenant: number;
    kind: CatalogueKind;
    name: string;
    examples_at: number | null;
  } & PropertiesRow;
  /** Hashes of erased match keys (`views/tombstone.ts`). Never removed: data received before an erase may be processed late. */
  tombstones: { tenant: number; hash: Uint8Array; erased_at: number };
  /** Who unmerged, erased, resubmitted or retried what; `detail` is a JSON object without personal data. */
  audit: {
    no: Generated<number>;
    tenant: number;
    kind: AuditRow['kind'];
    trace_id: string;
    at: number;
    detail: string;
  };
}

export type StoreQueries = SqlQueries<StoreTables>;

/** How an engine writes the types of columns and the ends of tables. */
export interface StoreColumnTypes extends ColumnTypes {
  /** Numbers below 2^31. */
  readonly smallInteger: string;
  readonly real: string;
  /** As text in queries, in lower case. */
  readonly uuid: string;
  /** For a table that is only accessed by its primary key. */
  readonly keyedTableEnd: string;
  /** For sums, whose rows are updated often: how full pages are at first. */
  readonly sumsTableEnd: (fillPercent: number) => string;
}

export function createStoreTables(types: StoreColumnTypes): string {
  const { number, text, integer, smallInteger, bytes, real, uuid, tableEnd, keyedTableEnd, sumsTableEnd } = types;
  return `
    CREATE TABLE positions (
      log           ${text} NOT NULL,
      partition     ${smallInteger} NOT NULL,
      position      ${integer} NOT NULL,
      processed_to  ${integer} NOT NULL DEFAULT 0,
      last_trace_id ${text},
      PRIMARY KEY (log, partition)
    ) ${keyedTableEnd};

    CREATE TABLE lost_records (
      log            ${text} NOT NULL,
      partition      ${smallInteger} NOT NULL,
      first_position ${integer} NOT NULL,
      next_position  ${integer} NOT NULL,
      records        ${integer} NOT NULL,
      found_at       ${integer} NOT NULL,
      PRIMARY KEY (log, partition, first_position)
    ) ${keyedTableEnd};

    CREATE TABLE counts (
      tenant     ${smallInteger} NOT NULL,
      width      ${smallInteger} NOT NULL,
      start      ${integer} NOT NULL,
      event_name ${text} NOT NULL,
      currency   ${text} NOT NULL,
      shard      ${smallInteger} NOT NULL,
      events     ${integer} NOT NULL,
      revenue    ${real} NOT NULL,
      PRIMARY KEY (tenant, width, start, event_name, currency, shard)
    ) ${sumsTableEnd(70)};

    CREATE TABLE ledger (
      tenant ${smallInteger} NOT NULL,
      hour   ${integer} NOT NULL,
      shard  ${smallInteger} NOT NULL,
      ${LEDGER_SUMS.map((sum) => `${sum} ${integer} NOT NULL DEFAULT 0,`).join('\n      ')}
      PRIMARY KEY (tenant, hour, shard)
    ) ${sumsTableEnd(50)};
    CREATE INDEX ledger_by_hour ON ledger (hour);

    CREATE TABLE receipts (
      tenant          ${smallInteger} NOT NULL,
      minute          ${integer} NOT NULL,
      shard           ${smallInteger} NOT NULL,
      users_accepted  ${integer} NOT NULL,
      users_rejected  ${integer} NOT NULL,
      events_accepted ${integer} NOT NULL,
      PRIMARY KEY (tenant, minute, shard)
    ) ${sumsTableEnd(70)};

    CREATE TABLE profile_counts (
      tenant   ${smallInteger} NOT NULL,
      shard    ${smallInteger} NOT NULL,
      profiles ${integer} NOT NULL,
      PRIMARY KEY (tenant, shard)
    ) ${sumsTableEnd(50)};

    CREATE TABLE plan_violations (
      tenant        ${smallInteger} NOT NULL,
      version       ${integer} NOT NULL,
      event_name    ${text} NOT NULL,
      path          ${text} NOT NULL,
      message       ${text} NOT NULL,
      shard         ${smallInteger} NOT NULL,
      count         ${integer} NOT NULL,
      first_at      ${integer} NOT NULL,
      last_at       ${integer} NOT NULL,
      last_trace_id ${text} NOT NULL,
      PRIMARY KEY (tenant, version, event_name, path, message, shard)
    ) ${sumsTableEnd(70)};

    CREATE TABLE rejections (
      no             ${number},
      tenant         ${smallInteger} NOT NULL,
      received_at    ${integer} NOT NULL,
      trace_id       ${uuid} NOT NULL,
      user_index     ${smallInteger} NOT NULL,
      message        ${text} NOT NULL,
      reason         ${text} NOT NULL,
      reason_hash    ${bytes} NOT NULL,
      payload        ${text} NOT NULL,
      payload_is_cut ${smallInteger} NOT NULL,
      key_id         ${text} NOT NULL,
      key_kind       ${text} NOT NULL,
      format         ${text},
      event_names    ${text} NOT NULL,
      resubmitted_at ${integer},
      accepted_by    ${uuid}
    ) ${tableEnd};
    CREATE INDEX rejections_by_time ON rejections (tenant, received_at, no);
    CREATE INDEX rejections_by_reason ON rejections (tenant, reason_hash, received_at, no, resubmitted_at);
    CREATE INDEX rejections_by_request ON rejections (trace_id, user_index);

    CREATE TABLE jobs (
      no             ${number},
      id             ${uuid} NOT NULL UNIQUE,
      tenant         ${smallInteger} NOT NULL,
      kind           ${text} NOT NULL,
      status         ${text} NOT NULL,
      created_at     ${integer} NOT NULL,
      stepped_at     ${integer} NOT NULL,
      finished_at    ${integer},
      called_by      ${text} NOT NULL,
      filter         ${text} NOT NULL,
      patch          ${text},
      fixed          ${text},
      dead_letter    ${integer},
      after_time     ${integer} NOT NULL,
      after_no       ${integer} NOT NULL,
      matched        ${integer} NOT NULL,
      resubmitted    ${integer} NOT NULL DEFAULT 0,
      still_rejected ${integer} NOT NULL DEFAULT 0,
      already        ${integer} NOT NULL DEFAULT 0,
      cut            ${integer} NOT NULL DEFAULT 0,
      failed         ${integer} NOT NULL DEFAULT 0,
      problems       ${text} NOT NULL DEFAULT '[]'
    ) ${tableEnd};
    CREATE INDEX jobs_by_tenant ON jobs (tenant, no);
    CREATE INDEX jobs_running ON jobs (stepped_at, no) WHERE status = 'running';

    CREATE TABLE dead_letters (
      no          ${number},
      tenant      ${smallInteger} NOT NULL,
      log         ${text} NOT NULL,
      partition   ${smallInteger} NOT NULL,
      position    ${integer} NOT NULL,
      received_at ${integer} NOT NULL,
      trace_id    ${uuid} NOT NULL,
      failed_at   ${integer} NOT NULL,
      cause       ${text} NOT NULL,
      first_user_index ${smallInteger} NOT NULL,
      users       ${integer} NOT NULL,
      events      ${integer} NOT NULL,
      key_id      ${text} NOT NULL,
      header      ${text} NOT NULL,
      body        ${bytes},
      retried_at  ${integer},
      -- A topic that lost records may have another one at the same position.
      UNIQUE (log, partition, position, trace_id)
    ) ${tableEnd};
    CREATE INDEX dead_letters_by_tenant ON dead_letters (tenant, no);

    CREATE TABLE catalogue_entries (
      tenant         ${smallInteger} NOT NULL,
      kind           ${text} NOT NULL,
      name           ${text} NOT NULL,
      count          ${integer} NOT NULL,
      examined       ${integer} NOT NULL,
      first_seen     ${integer} NOT NULL,
      last_seen      ${integer} NOT NULL,
      property_count ${smallInteger} NOT NULL,
      key_ids        ${text} NOT NULL,
      changes        ${text} NOT NULL,
      PRIMARY KEY (tenant, kind, name)
    ) ${sumsTableEnd(70)};
    CREATE INDEX catalogue_entries_by_age ON catalogue_entries (last_seen);

    CREATE TABLE catalogue_properties (
      tenant           ${smallInteger} NOT NULL,
      kind             ${text} NOT NULL,
      name             ${text} NOT NULL,
      examples_at      ${integer},
      other_properties ${integer} NOT NULL,
      properties       ${text} NOT NULL,
      examples         ${text} NOT NULL,
      PRIMARY KEY (tenant, kind, name)
    ) ${sumsTableEnd(70)};
    CREATE INDEX catalogue_properties_by_age ON catalogue_properties (examples_at);

    CREATE TABLE tombstones (
      tenant    ${smallInteger} NOT NULL,
      hash      ${bytes} NOT NULL,
      erased_at ${integer} NOT NULL,
      PRIMARY KEY (tenant, hash)
    ) ${keyedTableEnd};

    CREATE TABLE audit (
      no       ${number},
      tenant   ${smallInteger} NOT NULL,
      kind     ${text} NOT NULL,
      trace_id ${uuid} NOT NULL,
      at       ${integer} NOT NULL,
      detail   ${text} NOT NULL
    ) ${tableEnd};
    CREATE INDEX audit_by_tenant ON audit (tenant, no);`;
}
