/**
 * The tables of accounts with their API keys (`keys.ts`) and tracking plans (`plans.ts`), and of the people who sign in
 * (`members.ts`): as types for queries, and as SQL for both engines. They hold hashes of keys, passwords and tokens, never these themselves. `no` is
 * the order in which rows were made.
 */

import type { Generated } from 'kysely';
import type { InvitationKind } from '../../members.ts';
import type { Environment, KeyKind } from '../../model.ts';

export interface AccountTables {
  accounts: { no: Generated<number>; id: string; name: string; created_at: number };
  keys: {
    no: Generated<number>;
    id: string;
    hash: Uint8Array;
    account_id: string;
    name: string;
    kind: KeyKind;
    environment: Environment;
    /** JSON arrays of texts. */
    scopes: string;
    origins: string;
    /** Null for no limit, both. */
    users_per_second: number | null;
    burst_users: number | null;
    prefix: string;
    last_four: string;
    created_at: number;
    expires_at: number | null;
    revoked_at: Generated<number | null>;
    last_used_at: Generated<number | null>;
    last_origin: Generated<string | null>;
    leak_suspected_at: Generated<number | null>;
    leak_origin: Generated<string | null>;
  };
  /** By UTC day of receipt (its first millisecond). */
  key_volumes: {
    day: number;
    key_id: string;
    users: number;
    events: number;
    users_rejected: number;
    requests_limited: number;
  };
  /** Tracking plans (`plans.ts`); of a tenant the newest version is in use. */
  plans: {
    no: Generated<number>;
    account_id: string;
    environment: Environment;
    version: number;
    created_at: number;
    created_by: string;
    /** 0 or 1, both. */
    enforces: number;
    warns: number;
    /** JSON. */
    plan: string;
  };
  members: {
    no: Generated<number>;
    id: string;
    account_id: string;
    email: string;
    email_lower: string;
    password_hash: string;
    created_at: number;
    last_signed_in_at: Generated<number | null>;
  };
  sessions: {
    token_hash: Uint8Array;
    member_id: string;
    created_at: number;
    renewed_at: number;
    expires_at: number;
  };
  invitations: {
    no: Generated<number>;
    id: string;
    token_hash: Uint8Array;
    account_id: string;
    kind: InvitationKind;
    email: string | null;
    member_id: string | null;
    created_at: number;
    expires_at: number;
  };
  sign_in_attempts: { subject: Uint8Array; failures: number; last_at: number };
}

/** How an engine writes the types of columns. */
export interface ColumnTypes {
  /** The primary key of a table, counted up by the engine. */
  readonly number: string;
  readonly text: string;
  readonly integer: string;
  readonly bytes: string;
  /** After the closing parenthesis of a table. */
  readonly tableEnd: string;
}

export function createAccountTables({ number, text, integer, bytes, tableEnd }: ColumnTypes): string {
  return `
    CREATE TABLE accounts (
      no         ${number},
      id         ${text} NOT NULL UNIQUE,
      name       ${text} NOT NULL UNIQUE,
      created_at ${integer} NOT NULL
    ) ${tableEnd};

    CREATE TABLE keys (
      no                ${number},
      id                ${text} NOT NULL UNIQUE,
      hash              ${bytes} NOT NULL UNIQUE CHECK (length(hash) = 32),
      account_id        ${text} NOT NULL REFERENCES accounts (id),
      name              ${text} NOT NULL,
      kind              ${text} NOT NULL CHECK (kind IN ('secret', 'publishable')),
      environment       ${text} NOT NULL CHECK (environment IN ('production', 'development')),
      scopes            ${text} NOT NULL,
      origins           ${text} NOT NULL,
      users_per_second  ${integer},
      burst_users       ${integer},
      prefix            ${text} NOT NULL,
      last_four         ${text} NOT NULL,
      created_at        ${integer} NOT NULL,
      expires_at        ${integer},
      revoked_at        ${integer},
      last_used_at      ${integer},
      last_origin       ${text},
      leak_suspected_at ${integer},
      leak_origin       ${text},
      CHECK ((users_per_second IS NULL) = (burst_users IS NULL))
    ) ${tableEnd};
    CREATE INDEX keys_by_account ON keys (account_id);

    CREATE TABLE key_volumes (
      day              ${integer} NOT NULL,
      key_id           ${text} NOT NULL REFERENCES keys (id),
      users            ${integer} NOT NULL,
      events           ${integer} NOT NULL,
      users_rejected   ${integer} NOT NULL,
      requests_limited ${integer} NOT NULL,
      PRIMARY KEY (day, key_id)
    ) ${tableEnd};

    CREATE TABLE plans (
      no          ${number},
      account_id  ${text} NOT NULL REFERENCES accounts (id),
      environment ${text} NOT NULL CHECK (environment IN ('production', 'development')),
      version     ${integer} NOT NULL,
      created_at  ${integer} NOT NULL,
      created_by  ${text} NOT NULL,
      enforces    ${integer} NOT NULL,
      warns       ${integer} NOT NULL,
      plan        ${text} NOT NULL,
      UNIQUE (account_id, environment, version)
    ) ${tableEnd};

    CREATE TABLE members (
      no                ${number},
      id                ${text} NOT NULL UNIQUE,
      account_id        ${text} NOT NULL REFERENCES accounts (id),
      email             ${text} NOT NULL,
      email_lower       ${text} NOT NULL UNIQUE,
      password_hash     ${text} NOT NULL,
      created_at        ${integer} NOT NULL,
      last_signed_in_at ${integer}
    ) ${tableEnd};
    CREATE INDEX members_by_account ON members (account_id);

    CREATE TABLE sessions (
      token_hash ${bytes} PRIMARY KEY CHECK (length(token_hash) = 32),
      member_id  ${text} NOT NULL REFERENCES members (id) ON DELETE CASCADE,
      created_at ${integer} NOT NULL,
      renewed_at ${integer} NOT NULL,
      expires_at ${integer} NOT NULL
    ) ${tableEnd};
    CREATE INDEX sessions_by_member ON sessions (member_id, renewed_at);
    CREATE INDEX sessions_by_expiry ON sessions (expires_at);

    CREATE TABLE invitations (
      no         ${number},
      id         ${text} NOT NULL UNIQUE,
      token_hash ${bytes} NOT NULL UNIQUE CHECK (length(token_hash) = 32),
      account_id ${text} NOT NULL REFERENCES accounts (id),
      kind       ${text} NOT NULL CHECK (kind IN ('first', 'invitation', 'reset')),
      email      ${text},
      member_id  ${text} REFERENCES members (id) ON DELETE CASCADE,
      created_at ${integer} NOT NULL,
      expires_at ${integer} NOT NULL,
      CHECK ((kind = 'reset') = (member_id IS NOT NULL))
    ) ${tableEnd};
    CREATE INDEX invitations_by_account ON invitations (account_id);
    CREATE INDEX invitations_by_member ON invitations (member_id) WHERE member_id IS NOT NULL;

    CREATE TABLE sign_in_attempts (
      subject  ${bytes} PRIMARY KEY CHECK (length(subject) = 32),
      failures ${integer} NOT NULL,
      last_at  ${integer} NOT NULL
    ) ${tableEnd};
    CREATE INDEX sign_in_attempts_by_time ON sign_in_attempts (last_at);`;
}
