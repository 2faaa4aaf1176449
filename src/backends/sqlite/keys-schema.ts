/**
 * The tables of `keys.db`: accounts with their API keys (`keys.ts`), and the people who sign in (`members.ts`). Both
 * stores open the one file through here, so that whichever comes first brings it up to date. It holds hashes of keys,
 * passwords and tokens, never these themselves, and only its owner may read it.
 */

import type { DatabaseSync } from 'node:sqlite';
import { type DatabaseFile, openDatabase } from './database.ts';

const MIGRATIONS = [
  `CREATE TABLE accounts (
     id         TEXT PRIMARY KEY,
     name       TEXT NOT NULL UNIQUE,
     created_at INTEGER NOT NULL
   ) STRICT;
   CREATE TABLE keys (
     id                TEXT PRIMARY KEY,
     hash              BLOB NOT NULL CHECK (length(hash) = 32),
     account_id        TEXT NOT NULL REFERENCES accounts (id),
     name              TEXT NOT NULL,
     kind              TEXT NOT NULL CHECK (kind IN ('secret', 'publishable')),
     environment       TEXT NOT NULL CHECK (environment IN ('production', 'development')),
     scopes            TEXT NOT NULL,
     origins           TEXT NOT NULL,
     prefix            TEXT NOT NULL,
     last_four         TEXT NOT NULL,
     created_at        INTEGER NOT NULL,
     expires_at        INTEGER,
     revoked_at        INTEGER,
     last_used_at      INTEGER,
     leak_suspected_at INTEGER,
     leak_origin       TEXT
   ) STRICT;
   CREATE UNIQUE INDEX keys_by_hash ON keys (hash);`,

  `CREATE INDEX keys_by_account ON keys (account_id);
   CREATE TABLE members (
     id                TEXT PRIMARY KEY,
     account_id        TEXT NOT NULL REFERENCES accounts (id),
     email             TEXT NOT NULL,
     email_lower       TEXT NOT NULL UNIQUE,
     password_hash     TEXT NOT NULL,
     created_at        INTEGER NOT NULL,
     last_signed_in_at INTEGER
   ) STRICT;
   CREATE INDEX members_by_account ON members (account_id);
   CREATE TABLE sessions (
     token_hash BLOB PRIMARY KEY CHECK (length(token_hash) = 32),
     member_id  TEXT NOT NULL REFERENCES members (id) ON DELETE CASCADE,
     created_at INTEGER NOT NULL,
     renewed_at INTEGER NOT NULL,
     expires_at INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX sessions_by_member ON sessions (member_id, renewed_at);
   CREATE INDEX sessions_by_expiry ON sessions (expires_at);
   CREATE TABLE invitations (
     id         TEXT PRIMARY KEY,
     token_hash BLOB NOT NULL UNIQUE CHECK (length(token_hash) = 32),
     account_id TEXT NOT NULL REFERENCES accounts (id),
     kind       TEXT NOT NULL CHECK (kind IN ('first', 'invitation', 'reset')),
     email      TEXT,
     member_id  TEXT REFERENCES members (id) ON DELETE CASCADE,
     created_at INTEGER NOT NULL,
     expires_at INTEGER NOT NULL,
     CHECK ((kind = 'reset') = (member_id IS NOT NULL))
   ) STRICT;
   CREATE INDEX invitations_by_account ON invitations (account_id);
   CREATE TABLE sign_in_attempts (
     subject  BLOB PRIMARY KEY CHECK (length(subject) = 32),
     failures INTEGER NOT NULL,
     last_at  INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX sign_in_attempts_by_time ON sign_in_attempts (last_at);`,
  // One row once a server has run: which installation this file belongs to (installation.ts).
  'CREATE TABLE belongs_to (installation TEXT NOT NULL) STRICT;',
];

export function keysFile(file: string): DatabaseFile {
  return {
    file,
    name: 'key file',
    migrations: MIGRATIONS,
    newFilePragmas: '',
    pragmas: 'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;',
    check: true,
    withoutBackup:
      'move all three away, make new keys with "sluice keys create" and let people in with "sluice invite"; the event log is in other files and is not affected.',
  };
}

export function openKeysDatabase(file: string): DatabaseSync {
  return openDatabase(keysFile(file));
}
