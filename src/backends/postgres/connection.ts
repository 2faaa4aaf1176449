/**
 * Settings of every PostgreSQL connection: search path `sluice`, UTC, timeouts for statements, locks and idle
 * transactions, and dead-peer detection. bigint and numeric (the type of a sum of bigint) are parsed as JavaScript
 * numbers: none of our values reaches 2^53.
 */

import { type ClientConfig, types } from 'pg';
import type { InstallationCheck } from './installation-check.ts';
import { readPostgresUrl } from './url.ts';

export const SCHEMA = 'sluice';
const STATEMENT_TIMEOUT_MS = 30_000;
/** Also how long a call waits for a free connection of the pool. */
const CONNECT_TIMEOUT_MS = 5_000;
/**
 * A lock that is not acquired by then is a conflict, or the database is unavailable: see `pool-errors.ts`. Deadlocks
 * are found long before.
 */
const LOCK_TIMEOUT_MS = 10_000;
const IDLE_IN_TRANSACTION_TIMEOUT_MS = 60_000;
const KEEPALIVE_AFTER_MS = 10_000;
/** On top of the server's own timeout: by then the server has responded or is unreachable. */
const SILENCE_MARGIN_MS = 5_000;
const INT8 = 20;
const INT8_ARRAY = 1016;
const NUMERIC = 1700;
/** jit costs more than it gains for short statements. The keepalives let the server notice that this end is gone. */
const SESSION_OPTIONS =
  `-c search_path=${SCHEMA} -c timezone=UTC -c jit=off -c client_min_messages=warning ` +
  '-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=4 -c tcp_user_timeout=30000';

export interface PoolOptions {
  /** postgres://…, see `url.ts`. */
  readonly url: string;
  /** Maximum number of connections. */
  readonly max: number;
  /** Shown in pg_stat_activity. */
  readonly applicationName: string;
  readonly statementTimeoutMs?: number;
  /** Why the database cannot be queried yet; null once it can. Until then every call is rejected as unavailable. */
  readonly problem?: () => string | null;
  /** Set by servers: every connection must reach the database that the server was started with. */
  readonly installation?: InstallationCheck;
  /** Called when an idle connection fails. */
  readonly onIdleError?: (error: Error) => void;
}

/** For a dedicated connection (LISTEN) with the settings of the pool. */
export function connectionSettings({ url, applicationName, statementTimeoutMs }: PoolOptions): ClientConfig {
  const { connection } = readPostgresUrl(url);
  const statementTimeout = statementTimeoutMs ?? STATEMENT_TIMEOUT_MS;
  return {
    ...connection,
    application_name: applicationName,
    options: connection.options === undefined ? SESSION_OPTIONS : `${connection.options} ${SESSION_OPTIONS}`,
    statement_timeout: statementTimeout,
    query_timeout: statementTimeout + SILENCE_MARGIN_MS,
    lock_timeout: LOCK_TIMEOUT_MS,
    idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_TIMEOUT_MS,
    connectionTimeoutMillis: connection.connectionTimeoutMillis ?? CONNECT_TIMEOUT_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEPALIVE_AFTER_MS,
    types: { getTypeParser: parserOf as typeof types.getTypeParser },
  };
}

function parserOf(type: number, format?: 'text' | 'binary'): (value: string) => unknown {
  if (type === INT8 || type === NUMERIC) return Number;
  const parse = types.getTypeParser(type, format) as (value: string) => unknown;
  if (type !== INT8_ARRAY) return parse;
  return (value) => (parse(value) as (string | null)[]).map((item) => (item === null ? null : Number(item)));
}
