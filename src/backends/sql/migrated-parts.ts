/**
 * The parts of a migration (`migration/parts.ts`) and their columns. Tables that both engines have alike are parts as they
 * are defined, without the shard and the log, of which an embedded store has one. The others are listed here.
 */

import type { ColumnKind } from '../../migration/parts.ts';
import { ACCOUNT_TABLES } from './account-tables.ts';
import { STORE_TABLES } from './store-tables.ts';
import type { ColumnType, Tables } from './tables.ts';

type Columns = Readonly<Record<string, ColumnKind>>;

const KINDS: Readonly<Record<ColumnType, ColumnKind>> = {
  number: 'integer',
  text: 'text',
  integer: 'integer',
  smallInteger: 'integer',
  decimal: 'decimal',
  bytes: 'bytes',
  uuid: 'uuid',
  uuidBytes: 'uuid',
};

const SHARED = { ...STORE_TABLES, ...ACCOUNT_TABLES };
const SHARED_TABLES: Tables = SHARED;

const FIRST_USE = { received_at: 'integer', trace_id: 'uuid' } as const;
const ORIGIN = { ...FIRST_USE, user_index: 'integer' } as const;

/** `names` are separated by blanks. */
function integers(names: string): Columns {
  return Object.fromEntries(names.split(' ').map((name) => [name, 'integer']));
}

function texts(names: string): Columns {
  return Object.fromEntries(names.split(' ').map((name) => [name, 'text']));
}

function shared(...names: readonly (keyof typeof SHARED)[]): Record<string, Columns> {
  return Object.fromEntries(
    names.map((name) => {
      const columns = Object.entries<{ readonly type: ColumnType }>(SHARED[name].columns);
      const kept = columns.filter(([column]) => column !== 'shard' && column !== 'log');
      return [name, Object.fromEntries(kept.map(([column, { type }]) => [column, KINDS[type]]))];
    }),
  );
}

/** In the order in which they are migrated: what others refer to comes first. Columns in the order of a chunk. */
const PARTS: Readonly<Record<string, Columns>> = {
  tenants: { no: 'integer', id: 'text', last_erased_at: 'integer' },
  nodes: {
    // `root` is the root of a node that was merged away; null for a root itself.
    ...integers('no tenant root events first_seen last_seen'),
    properties: 'text',
    id: 'uuid',
    ...ORIGIN,
  },
  identifiers: { tenant: 'integer', type: 'integer', value: 'text', node: 'integer', raw: 'text', ...ORIGIN },
  ...shared('merges', 'cannot_link', 'refusals'),
  ...shared('starts'),
  // The last event of each tenant, in the order of arrival, that has expired.
  expired_arrivals: { tenant: 'integer', event: 'integer' },
  ...shared('tombstones'),
  // What first uses are hashed with (views/keyed-hash.ts): one row, or none where nothing was ever stored.
  key_secret: { secret: 'bytes' },
  idempotency_keys: { hash: 'integer', rest: 'integer', ...FIRST_USE, body_hash: 'text' },
  event_ids: { hash: 'integer', rest: 'integer', received_at: 'integer' },
  ...shared(
    'counts',
    'ledger',
    'receipts',
    'profile_counts',
    'catalogue_entries',
    'catalogue_properties',
    'plan_violations',
  ),
  ...shared('rejections', 'dead_letters', 'jobs', 'audit'),
  records: {
    ...integers('no tenant processed_at first_user_index users_accepted users_rejected first_event events'),
    ...texts('key_id notes'),
    ...FIRST_USE,
    duplicate_of: 'uuid',
  },
  events: {
    ...integers('no tenant node'),
    ...ORIGIN,
    timestamp: 'integer',
    key_id: 'text',
    event_index: 'integer',
    ...texts('event_name revenue currency value properties'),
  },
  ...shared(
    'accounts',
    'keys',
    'key_volumes',
    'plans',
    'members',
    'sessions',
    'invitations',
    'sign_in_attempts',
    'lost_records',
  ),
  // Last, so that what is there of an unfinished migration is never taken for a complete store.
  positions: integers('partition position processed_to'),
};

export const PART_NAMES: readonly string[] = Object.keys(PARTS);

export function columnsOf(part: string): readonly (readonly [name: string, kind: ColumnKind])[] {
  return Object.entries(PARTS[part] ?? {});
}

/** Whether the table of a part has a column that the part may lack. */
export function hasColumn(part: string, column: string): boolean {
  return SHARED_TABLES[part]?.columns[column] !== undefined;
}
