/**
 * The connection pool that everything in this folder uses, and the settings of every connection. bigint and numeric (the
 * type of a sum of bigint) are parsed as JavaScript numbers: none of our values reaches 2^53. A connection failure never
 * crashes the process, and errors are mapped in one place (`pool-errors.ts`); after any but a conflict, a connection is
 * closed instead of going back to the pool. Before anything relies on a server it is checked once, and what is
 * misconfigured is explained. Connect directly or through a pooler in session mode: transaction pooling does not support
 * the session settings.
 *
 * While a server runs, its STORE_URL may begin to point at another database: databases are renamed, or dropped and
 * created again. A connection never changes its database, so each is checked once, before its first use
 * (`assertInstallation`); nothing is ever read from or written to the database of another installation. A restored dump
 * of the same database passes.
 */

import { finished } from 'node:stream/promises';
import { type ClientConfig, Pool, type PoolClient, type QueryArrayConfig, type QueryConfig, types } from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { OperatorError } from '../../errors.ts';
import { StoreConflictError, StoreUnavailableError } from '../../store-writer.ts';
import { asErrorOfStatement, asStoreError, codeOf } from './pool-errors.ts';
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
  /** Set by servers: every connection must reach the database that the server was started with. */
  readonly installation?: InstallationCheck;
}

function connectionSettings({ url, applicationName, statementTimeoutMs }: PoolOptions): ClientConfig {
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

export interface InstallationCheck {
  /** The installation that the server was started with. */
  readonly expected: string;
  /** Called after each check. */
  readonly onChecked: (isExpected: boolean) => void;
}

/** SQLSTATE undefined_table. */
const NO_TABLE = '42P01';

/** Rejects with `StoreUnavailableError`: the right database may be back soon. */
export async function assertInstallation(
  connection: Queryable,
  { expected, onChecked }: InstallationCheck,
): Promise<void> {
  const found = await findInstallation(connection);
  onChecked(found === expected);
  if (found === expected) return;
  const what =
    found === undefined
      ? `to one without the tables of Sluice, or where its user has no USAGE right on the schema ${SCHEMA}`
      : `to that of the installation ${found}`;
  throw new StoreUnavailableError(
    `STORE_URL now points to a different database than at startup: ${what}, and this server belongs to the installation ` +
      `${expected}. Nothing is read from it or written to it. Make STORE_URL lead to the right database again: the server ` +
      'then continues by itself',
  );
}

/** Undefined for a database without tables. */
async function findInstallation(connection: Queryable): Promise<string | undefined> {
  try {
    const { rows } = await connection.query<{ id: string }>('SELECT id::text FROM identity');
    return rows[0]?.id;
  } catch (error) {
    if (codeOf(error) === NO_TABLE) return undefined;
    throw error;
  }
}

/** How long closing waits for connections in use before it cuts them off. */
const CLOSE_MS = 5_000;
const IDLE_CONNECTION_MS = 60_000;

/**
 * A statement with options. A named statement is prepared once per connection; a name must always have the same text.
 */
export interface Statement {
  readonly text: string;
  readonly name?: string;
  /** Rows as arrays instead of objects. */
  readonly rowMode?: 'array';
  /**
   * How long to wait for the response, instead of the pool's timeout. The caller sets the server's statement_timeout.
   */
  readonly timeoutMs?: number;
}

export interface Result<Row> {
  readonly rows: Row[];
  /** Rows read or written. */
  readonly rowCount: number;
  /** The command tag; COMMIT of a failed transaction returns ROLLBACK. */
  readonly command: string;
}

/** Of a statement that always gives one. */
export function rowOf<Row>({ rows }: Result<Row>): Row {
  const [row] = rows;
  if (row === undefined) throw new Error('a statement gave no row');
  return row;
}

/** Runs statements: a pool (any connection, one transaction each) or a client (one connection). */
export interface Queryable {
  /** Rejects with `StoreConflictError`, `StoreUnavailableError` or, for a bug, with the server's error. */
  query<Row>(statement: string | Statement, values?: readonly unknown[]): Promise<Result<Row>>;
}

/** Checks address, password, database and version; an `OperatorError` says how to fix them. */
export async function openPool(options: PoolOptions): Promise<PostgresPool> {
  const { address } = readPostgresUrl(options.url);
  const pool = new PostgresPool(new Connections(options));
  try {
    await checkServer(pool, address);
  } catch (error) {
    await pool.close();
    throw explainRefusal(error, address);
  }
  return pool;
}

const VERSION_MIN = 15;
const VERSION_STEP = 10_000;

async function checkServer(pool: Queryable, address: string): Promise<void> {
  const found = await pool.query<{ version: number; encoding: string }>(
    `SELECT current_setting('server_version_num')::int AS version, current_setting('server_encoding') AS encoding`,
  );
  const { version, encoding } = rowOf(found);
  const mistake = serverMistake(Math.floor(version / VERSION_STEP), encoding, address);
  if (mistake !== undefined) throw new OperatorError(mistake);
}

export function serverMistake(version: number, encoding: string, address: string): string | undefined {
  if (version < VERSION_MIN) {
    return `The server at ${address} is PostgreSQL ${version}; Sluice needs ${VERSION_MIN} or later. Upgrade it, or point STORE_URL at another.`;
  }
  if (encoding !== 'UTF8') {
    return `The database at ${address} has the encoding ${encoding}, which cannot hold all text. Make one with: createdb --encoding=UTF8 --template=template0 NAME`;
  }
  return undefined;
}

/** The error to show to an operator who starts Sluice; other errors are returned unchanged. */
function explainRefusal(error: unknown, address: string): unknown {
  const words = wordsFor(codeOf(error) ?? '', error, address);
  return words === undefined ? error : new OperatorError(words, { cause: error });
}

function wordsFor(code: string, error: unknown, address: string): string | undefined {
  const message = error instanceof Error ? error.message : '';
  if (code === '28P01' || /password must be a string/.test(message)) {
    return `PostgreSQL at ${address} refuses the user or password in STORE_URL. Correct them; write special characters percent-encoded (@ as %40, / as %2F, # as %23).`;
  }
  if (code === '28000') {
    return `PostgreSQL at ${address} rejects this user from this host (pg_hba.conf, or the user does not exist)${/no encryption/.test(message) ? '; it may want an encrypted connection: add sslmode=verify-full to STORE_URL' : ''}.`;
  }
  if (code === '3D000')
    return `There is no such database at ${address}. Create it with createdb, or correct STORE_URL.`;
  if (code === '42501')
    return `The user in STORE_URL may not use the database at ${address}. Grant it CONNECT and CREATE.`;
  if (/does not support SSL/.test(message)) {
    return `PostgreSQL at ${address} does not offer encryption. Switch it on there (ssl = on), or take sslmode out of STORE_URL.`;
  }
  const [, alert] = REFUSED_CERTIFICATE.exec(code) ?? [];
  if (alert !== undefined) {
    const reason = alert.toLowerCase().replaceAll('_', ' ');
    return `PostgreSQL at ${address} refuses the client certificate (${reason}). Set sslcert in STORE_URL to one that is valid and signed by an authority that the server trusts (its ssl_ca_file), and sslkey to its key.`;
  }
  if (isCertificateCode(code)) {
    return `The certificate of PostgreSQL at ${address} is not trusted (${code}). Name the authority's file in STORE_URL with sslrootcert=FILE, and the host as the certificate has it.`;
  }
  return undefined;
}

/** The alerts with which a server ends a connection because of the certificate of the client. */
const REFUSED_CERTIFICATE =
  /^ERR_SSL_[A-Z0-9]+_ALERT_(UNKNOWN_CA|DECRYPT_ERROR|(?:BAD_|UNSUPPORTED_)?CERTIFICATE(?:_[A-Z]+)?)$/;

function isCertificateCode(code: string): boolean {
  return code === 'ERR_TLS_CERT_ALTNAME_INVALID' || /(SELF_SIGNED|CERT_|UNABLE_TO_(VERIFY|GET_ISSUER))/.test(code);
}

/** Connects to nothing: for a server, which has checked the database before, and continues if it is gone by now. */
export function poolWithoutCheck(options: PoolOptions): PostgresPool {
  return new PostgresPool(new Connections(options));
}

/**
 * A reference-counted handle: a store owns the handle it is given and closes it, and `share` returns another to the same
 * connections, which close with the last one.
 */
export class PostgresPool implements Queryable {
  readonly #connections: Connections;
  #isClosed = false;

  constructor(connections: Connections) {
    this.#connections = connections;
    connections.handles++;
  }

  /** They contain the password: never log them. */
  get options(): PoolOptions {
    return this.#connections.options;
  }

  /** Open and idle connections, and calls that wait for one; for metrics. */
  get sizes(): { total: number; idle: number; waiting: number } {
    const { totalCount, idleCount, waitingCount } = this.#connections.pool;
    return { total: totalCount, idle: idleCount, waiting: waitingCount };
  }

  /**
   * How often the server may have been replaced by another one, perhaps restored to an earlier state: counted when a
   * connection broke, or when none was left open. Closing one of several idle connections does not count.
   */
  get interruptions(): number {
    return this.#connections.interruptions;
  }

  /** Another handle of the same connections, which the caller closes. */
  share(): PostgresPool {
    return new PostgresPool(this.#connections);
  }

  async query<Row>(statement: string | Statement, values?: readonly unknown[]): Promise<Result<Row>> {
    try {
      return await this.withClient((client) => client.query<Row>(statement, values));
    } catch (error) {
      throw asErrorOfStatement(error);
    }
  }

  /** Lends a connection for the duration of `work`. */
  async withClient<T>(work: (client: PostgresClient) => Promise<T>): Promise<T> {
    const client = await this.#take();
    try {
      return await work(client);
    } finally {
      client.release();
    }
  }

  /** Runs `work` in a READ COMMITTED transaction, again after each conflict, `attempts` times in all. */
  async inTransaction<T>(work: (client: PostgresClient) => Promise<T>, attempts = 1): Promise<T> {
    const client = await this.begin();
    try {
      const result = await work(client);
      await client.commit();
      return result;
    } catch (error) {
      await client.rollback();
      if (attempts > 1 && error instanceof StoreConflictError) return this.inTransaction(work, attempts - 1);
      throw error;
    }
  }

  /** All statements of `work`, which writes nothing, see the same snapshot. */
  async inSnapshot<T>(work: (client: PostgresClient) => Promise<T>): Promise<T> {
    const client = await this.begin('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY');
    try {
      return await work(client);
    } catch (error) {
      throw asErrorOfStatement(error);
    } finally {
      await client.rollback();
    }
  }

  /**
   * A connection in a transaction, which ends with `commit` or `rollback`. `settings` are statements (SET LOCAL …) sent
   * with BEGIN in one message.
   */
  async begin(settings = ''): Promise<PostgresClient> {
    const client = await this.#take();
    try {
      await client.query(`BEGIN ISOLATION LEVEL READ COMMITTED; ${settings}`);
    } catch (error) {
      client.release();
      throw error;
    }
    return client;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#connections.leave();
  }

  async #take(): Promise<PostgresClient> {
    if (this.#isClosed) throw new StoreUnavailableError('the connection to PostgreSQL is closed');
    let connection: PoolClient;
    try {
      connection = await this.#connections.pool.connect();
    } catch (error) {
      throw asStoreError(error);
    }
    const client = new PostgresClient(connection);
    await this.#checkInstallation(connection, client);
    return client;
  }

  /** Once for each connection. */
  async #checkInstallation(connection: PoolClient, client: PostgresClient): Promise<void> {
    const { installation } = this.options;
    const { checked } = this.#connections;
    if (installation === undefined || checked.has(connection)) return;
    try {
      await assertInstallation(client, installation);
      checked.add(connection);
    } catch (error) {
      client.close();
      throw error;
    }
  }
}

/** One connection, for one user at a time. */
export class PostgresClient implements Queryable {
  readonly #client: PoolClient;
  #isUsable = true;
  #isReleased = false;
  readonly #onError = (): void => {
    this.#isUsable = false;
  };

  constructor(client: PoolClient) {
    this.#client = client;
    // Without a listener, a connection lost between two statements would end the process.
    client.on('error', this.#onError);
  }

  /** False forever after a failure that leaves the state of the connection unclear. */
  get isUsable(): boolean {
    return this.#isUsable;
  }

  async query<Row>(statement: string | Statement, values?: readonly unknown[]): Promise<Result<Row>> {
    const config = typeof statement === 'string' ? { text: statement } : statement;
    try {
      const { timeoutMs, ...rest } = config;
      const query = { ...rest, values, ...(timeoutMs === undefined ? {} : { query_timeout: timeoutMs }) };
      const result = await this.#client.query(query as QueryConfig | QueryArrayConfig);
      return { rows: result.rows as Row[], rowCount: result.rowCount ?? 0, command: result.command };
    } catch (error) {
      throw this.#mapped(error);
    }
  }

  /** `sql` is COPY … FROM STDIN; rows as by `copyLine`. Rejects as `query` does. */
  async copyIn(sql: string, rows: Buffer): Promise<void> {
    try {
      const copy = this.#client.query(copyFrom(sql));
      copy.end(rows);
      await finished(copy);
    } catch (error) {
      const mapped = this.#mapped(error);
      // A response that arrives after the stream has failed would throw in it, outside of any promise.
      if (!this.#isUsable) this.#client.connection.stream.destroy();
      throw mapped;
    }
  }

  /** Instead of `release`, for one that must not be used again. */
  close(): void {
    this.#isUsable = false;
    this.release();
  }

  /** Ends its transaction. When this rejects with `StoreUnavailableError`, that may or may not be committed. */
  async commit(): Promise<void> {
    try {
      const { command } = await this.query('COMMIT');
      // The server treats COMMIT after a failed statement as ROLLBACK, without an error.
      if (command !== 'COMMIT') throw new Error('a transaction was committed in which a statement had failed');
    } finally {
      this.release();
    }
  }

  /**
   * Ends its transaction. Does nothing after `commit`, and never rejects: a connection that cannot roll back is closed,
   * which does the same.
   */
  async rollback(): Promise<void> {
    if (this.#isReleased) return;
    try {
      if (this.#isUsable) await this.query('ROLLBACK');
    } catch {
      // The client has noted that it is unusable.
    }
    this.release();
  }

  /** Returns it to the pool, or closes it. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    // A graceful close could hang forever on a silent connection.
    if (!this.#isUsable) this.#client.connection.stream.destroy();
    this.#client.release(!this.#isUsable);
    this.#client.off('error', this.#onError);
  }

  #mapped(error: unknown): unknown {
    const mapped = asStoreError(error);
    if (!(mapped instanceof StoreConflictError)) this.#isUsable = false;
    return mapped;
  }
}

/** The connections that handles share. */
class Connections {
  readonly options: PoolOptions;
  readonly pool: Pool;
  handles = 0;
  interruptions = 0;
  /** Those that lead to the right database. */
  readonly checked = new WeakSet<PoolClient>();
  readonly #open = new Set<PoolClient>();

  constructor(options: PoolOptions) {
    this.options = options;
    this.pool = new Pool({
      ...connectionSettings(options),
      max: options.max,
      idleTimeoutMillis: IDLE_CONNECTION_MS,
    });
    this.pool.on('error', () => {
      this.interruptions += 1;
    });
    this.pool.on('release', (error: unknown) => {
      if (error) this.interruptions += 1;
    });
    this.pool.on('connect', (client) => this.#open.add(client));
    this.pool.on('remove', (client) => {
      this.#open.delete(client);
      if (this.#open.size === 0) this.interruptions += 1;
    });
  }

  async leave(): Promise<void> {
    this.handles--;
    if (this.handles > 0) return;
    const cut = setTimeout(() => {
      for (const client of this.#open) client.connection.stream.destroy();
    }, CLOSE_MS);
    await this.pool.end();
    clearTimeout(cut);
  }
}
