/**
 * The tables of accounts with their API keys (`keys.ts`) and tracking plans (`plans.ts`), and of the people who sign in
 * (`members.ts`). They hold hashes of keys, passwords and tokens, never these themselves. `no` is the order in which rows
 * were made.
 */

import type { InvitationKind } from '../../members.ts';
import type { Environment, KeyKind } from '../../model.ts';
import { bytes, integer, nullable, number, primaryKey, table, type TablesOf, text } from './tables.ts';

const environment = text<Environment>("CHECK (environment IN ('production', 'development'))");
const accountId = text('REFERENCES accounts (id)');

export const ACCOUNT_TABLES = {
  accounts: table({ no: number, id: text('UNIQUE'), name: text('UNIQUE'), created_at: integer() }),
  keys: table(
    {
      no: number,
      id: text('UNIQUE'),
      hash: bytes('UNIQUE CHECK (length(hash) = 32)'),
      account_id: accountId,
      name: text(),
      kind: text<KeyKind>("CHECK (kind IN ('secret', 'publishable'))"),
      environment,
      /** JSON arrays of texts. */
      scopes: text(),
      origins: text(),
      /** Null for no limit, both. */
      users_per_second: nullable(integer()),
      burst_users: nullable(integer()),
      prefix: text(),
      last_four: text(),
      created_at: integer(),
      expires_at: nullable(integer()),
      revoked_at: nullable(integer()),
      last_used_at: nullable(integer()),
      last_origin: nullable(text()),
      leak_suspected_at: nullable(integer()),
      leak_origin: nullable(text()),
    },
    {
      constraints: ['CHECK ((users_per_second IS NULL) = (burst_users IS NULL))'],
      indexes: { keys_by_account: 'keys (account_id)' },
    },
  ),
  /** By UTC day of receipt (its first millisecond). */
  key_volumes: table(
    {
      day: integer(),
      key_id: text('REFERENCES keys (id)'),
      users: integer(),
      events: integer(),
      users_rejected: integer(),
      requests_limited: integer(),
    },
    { constraints: ['PRIMARY KEY (day, key_id)'] },
  ),
  /** Tracking plans (`plans.ts`); of a tenant the newest version is in use. */
  plans: table(
    {
      no: number,
      account_id: accountId,
      environment,
      version: integer(),
      created_at: integer(),
      created_by: text(),
      /** 0 or 1, both. */
      enforces: integer(),
      warns: integer(),
      /** JSON. */
      plan: text(),
    },
    { constraints: ['UNIQUE (account_id, environment, version)'] },
  ),
  members: table(
    {
      no: number,
      id: text('UNIQUE'),
      account_id: accountId,
      email: text(),
      email_lower: text('UNIQUE'),
      password_hash: text(),
      created_at: integer(),
      last_signed_in_at: nullable(integer()),
    },
    { indexes: { members_by_account: 'members (account_id)' } },
  ),
  sessions: table(
    {
      token_hash: primaryKey(bytes('CHECK (length(token_hash) = 32)')),
      member_id: text('REFERENCES members (id) ON DELETE CASCADE'),
      created_at: integer(),
      renewed_at: integer(),
      expires_at: integer(),
    },
    {
      indexes: { sessions_by_member: 'sessions (member_id, renewed_at)', sessions_by_expiry: 'sessions (expires_at)' },
    },
  ),
  invitations: table(
    {
      no: number,
      id: text('UNIQUE'),
      token_hash: bytes('UNIQUE CHECK (length(token_hash) = 32)'),
      account_id: accountId,
      kind: text<InvitationKind>("CHECK (kind IN ('first', 'invitation', 'reset'))"),
      email: nullable(text()),
      member_id: nullable(text('REFERENCES members (id) ON DELETE CASCADE')),
      created_at: integer(),
      expires_at: integer(),
    },
    {
      constraints: ["CHECK ((kind = 'reset') = (member_id IS NOT NULL))"],
      indexes: {
        invitations_by_account: 'invitations (account_id)',
        invitations_by_member: 'invitations (member_id) WHERE member_id IS NOT NULL',
      },
    },
  ),
  sign_in_attempts: table(
    { subject: primaryKey(bytes('CHECK (length(subject) = 32)')), failures: integer(), last_at: integer() },
    { indexes: { sign_in_attempts_by_time: 'sign_in_attempts (last_at)' } },
  ),
};

export type AccountTables = TablesOf<typeof ACCOUNT_TABLES>;
