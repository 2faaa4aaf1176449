/**
 * Where each migrated part (migration/parts.ts) is in `store.db` and `keys.db`: the table, the order in which its rows
 * are read, and expressions for columns with another name or from another table. Records and events, which are in many
 * tables and in blocks, are in migrate/events.ts; first uses, which are in sorted runs, in migrate/first-uses.ts.
 */

import type { PartName } from '../../../migration/parts.ts';

export type PlainPart = Exclude<PartName, 'records' | 'events' | 'idempotency_keys' | 'event_ids'>;

export interface PlainTable {
  readonly file: 'store' | 'keys';
  readonly from: string;
  /** Unique columns, in the order of an index: nothing is sorted. */
  readonly order: readonly string[];
  /** Columns that differ from the table's column of that name. */
  readonly columns?: Readonly<Record<string, string>>;
}

/** Tables of keys.db are ordered by creation of their rows. */
const ROWS: Pick<PlainTable, 'file' | 'order' | 'columns'> = {
  file: 'keys',
  order: ['rowid'],
  columns: { no: 'rowid' },
};

export const PLAIN_TABLES: Readonly<Record<PlainPart, PlainTable>> = {
  tenants: { file: 'store', from: 'tenants', order: ['no'] },
  nodes: {
    file: 'store',
    from: 'nodes LEFT JOIN aliases ON aliases.node = nodes.no',
    order: ['nodes.no'],
    // The mutable state of nodes is in runs (store/profile-runs.ts), and is added to their rows.
    columns: { root: 'aliases.root', events: 'NULL', first_seen: 'NULL', last_seen: 'NULL', properties: 'NULL' },
  },
  identifiers: { file: 'store', from: 'identifiers', order: ['node', 'type', 'value'] },
  merges: { file: 'store', from: 'merges', order: ['no'] },
  cannot_link: { file: 'store', from: 'cannot_link', order: ['node_a', 'node_b'] },
  refusals: { file: 'store', from: 'refusals', order: ['node', 'type', 'value', 'reason'] },
  starts: { file: 'store', from: 'starts', order: ['no'] },
  expired_arrivals: { file: 'store', from: 'expired_arrivals', order: ['tenant'] },
  tombstones: { file: 'store', from: 'tombstones', order: ['tenant', 'hash'] },
  key_secret: { file: 'store', from: 'key_secret', order: ['rowid'] },
  counts: { file: 'store', from: 'counts', order: ['tenant', 'width', 'start', 'event_name', 'currency'] },
  ledger: { file: 'store', from: 'ledger', order: ['tenant', 'hour'] },
  receipts: { file: 'store', from: 'receipts', order: ['tenant', 'minute'] },
  profile_counts: { file: 'store', from: 'profile_counts', order: ['tenant'] },
  catalogue_entries: { file: 'store', from: 'catalogue_entries', order: ['tenant', 'kind', 'name'] },
  catalogue_properties: { file: 'store', from: 'catalogue_properties', order: ['tenant', 'kind', 'name'] },
  plan_violations: {
    file: 'store',
    from: 'plan_violations',
    order: ['tenant', 'version', 'event_name', 'path', 'message'],
  },
  rejections: { file: 'store', from: 'rejections', order: ['no'] },
  dead_letters: { file: 'store', from: 'dead_letters', order: ['no'] },
  jobs: { file: 'store', from: 'jobs', order: ['no'] },
  audit: { file: 'store', from: 'audit', order: ['no'] },
  accounts: { ...ROWS, from: 'accounts' },
  keys: { ...ROWS, from: 'keys' },
  key_volumes: { ...ROWS, from: 'key_volumes' },
  plans: { ...ROWS, from: 'plans' },
  members: { ...ROWS, from: 'members' },
  sessions: { ...ROWS, from: 'sessions' },
  invitations: { ...ROWS, from: 'invitations' },
  sign_in_attempts: { ...ROWS, from: 'sign_in_attempts' },
  lost_records: { file: 'store', from: 'lost_records', order: ['partition', 'first_position'] },
  positions: { file: 'store', from: 'positions', order: ['partition'] },
};

export function isPlain(part: PartName): part is PlainPart {
  return Object.hasOwn(PLAIN_TABLES, part);
}
