/**
 * Parses STORE_URL: postgres://user:password@host:port/database?sslmode=verify-full&sslrootcert=ca.pem
 *
 * `sslmode` has libpq's meaning, whatever the version of `pg`. Absent or `disable`: no TLS. `require`: TLS without
 * certificate checks (with `sslrootcert`, like verify-ca). `verify-ca`: the certificate must be signed by a CA in
 * `sslrootcert`. `verify-full`: it must also match the host; without `sslrootcert` (or with `system`), the system's CAs
 * are trusted. `prefer` and `allow` are rejected, because they fall back to plain text. `sslcert` and `sslkey` are for
 * a client certificate. `channel_binding=require` (or `prefer`) only enables channel binding where the server offers
 * it; use verify-full to authenticate the server.
 *
 * For a Unix socket: postgres:///database?host=/folder. `connect_timeout` is in seconds. The password may come from
 * PGPASSWORD or .pgpass instead. Messages name parameters, never values.
 */

import { readFileSync } from 'node:fs';
import { type ConnectionOptions, createSecureContext } from 'node:tls';
import type { ClientConfig } from 'pg';
import { OperatorError } from '../../errors.ts';

const FORM = 'postgres://user:password@host:5432/database';
const PORT_MAX = 65_535;
const CERTIFICATE = /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----/;
const PARAMETERS = new Set([
  'sslmode',
  'sslrootcert',
  'sslcert',
  'sslkey',
  'host',
  'port',
  'channel_binding',
  'options',
  'connect_timeout',
]);

interface PostgresUrl {
  readonly connection: ClientConfig;
  /** Host, port and database, for messages: no user, no password. */
  readonly address: string;
}

export function readPostgresUrl(text: string): PostgresUrl {
  const url = URL.parse(text);
  // A later @ or # belongs to an unencoded password, part of which was then read as host and database.
  const isMisread = url !== null && (url.hash !== '' || `${url.pathname}${url.search}`.includes('@'));
  if (url === null || isMisread || !/^postgres(ql)?:$/.test(url.protocol)) {
    throw new OperatorError(
      `STORE_URL is not an address of a PostgreSQL database. It has the form ${FORM}; write special characters of the password percent-encoded (@ as %40, / as %2F, # as %23).`,
    );
  }
  refuseUnknown(url.searchParams);
  const parameters = url.searchParams;
  const host = parameters.get('host') ?? decoded('host', url.hostname.replace(/^\[(.+)\]$/, '$1'));
  const database = decoded('database', url.pathname.slice(1));
  if (host === '') throw new OperatorError(`STORE_URL names no host. It has the form ${FORM}.`);
  if (host.includes(',')) {
    throw new OperatorError('STORE_URL names several hosts; name one, which always leads to the primary server.');
  }
  if (database === '' || database.includes('/')) {
    throw new OperatorError(`STORE_URL names no database after the host. It has the form ${FORM}.`);
  }
  const port = portOf(parameters.get('port') ?? url.port);
  const user = decoded('user', url.username);
  const password = decoded('password', url.password);
  const options = parameters.get('options');
  const connection: ClientConfig = {
    host,
    port,
    database,
    ssl: tlsOf(parameters),
    enableChannelBinding: (parameters.get('channel_binding') ?? 'disable') !== 'disable',
    ...(user === '' ? {} : { user }),
    ...(password === '' ? {} : { password }),
    ...(options === null ? {} : { options }),
    ...connectTimeoutOf(parameters.get('connect_timeout')),
  };
  return { connection, address: `${host.startsWith('/') ? `${host} port ` : `${host}:`}${port}/${database}` };
}

function refuseUnknown(parameters: URLSearchParams): void {
  for (const name of parameters.keys()) {
    if (PARAMETERS.has(name)) continue;
    throw new OperatorError(
      `STORE_URL has the parameter "${name}", which is not known. Known are: ${[...PARAMETERS].join(', ')}.`,
    );
  }
}

function decoded(what: string, text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new OperatorError(`The ${what} in STORE_URL has a % that begins no percent-encoding; write a % as %25.`);
  }
}

function portOf(text: string): number {
  const port = text === '' ? 5432 : Number(text);
  if (Number.isInteger(port) && port > 0 && port <= PORT_MAX) return port;
  throw new OperatorError('The port in STORE_URL is not a number from 1 to 65535.');
}

function connectTimeoutOf(text: string | null): ClientConfig {
  if (text === null) return {};
  const seconds = Number(text);
  if (Number.isInteger(seconds) && seconds > 0) return { connectionTimeoutMillis: seconds * 1_000 };
  throw new OperatorError('connect_timeout in STORE_URL is not a whole number of seconds above 0.');
}

function tlsOf(parameters: URLSearchParams): ConnectionOptions | false {
  const mode = parameters.get('sslmode') ?? 'disable';
  const root = parameters.get('sslrootcert');
  const hasAuthority = root !== null && root !== 'system';
  const files: ConnectionOptions = { ...(hasAuthority ? { ca: authorityOf(root) } : {}), ...identityOf(parameters) };
  const isForAnyHost = { checkServerIdentity: () => undefined };
  switch (mode) {
    case 'disable':
      if (parameters.has('sslrootcert') || parameters.has('sslcert') || parameters.has('sslkey')) {
        throw new OperatorError('STORE_URL names certificates but no encryption; add sslmode=verify-full.');
      }
      return false;
    case 'require':
      return hasAuthority ? { ...files, ...isForAnyHost } : { ...files, rejectUnauthorized: false };
    case 'verify-ca':
      if (hasAuthority) return { ...files, ...isForAnyHost };
      throw new OperatorError(
        'sslmode=verify-ca in STORE_URL needs sslrootcert=FILE: an authority of the system signs for any host. Name the file, or use sslmode=verify-full.',
      );
    case 'verify-full':
      return files;
    default:
      throw new OperatorError(
        'sslmode in STORE_URL must be disable, require, verify-ca or verify-full; others may fall back to no encryption.',
      );
  }
}

/** OpenSSL trusts nothing, without an error, if the file has no certificate. */
function authorityOf(file: string): string {
  const text = fileOf('sslrootcert', file);
  if (CERTIFICATE.test(text)) return text;
  throw new OperatorError(
    `The file of sslrootcert in STORE_URL, "${file}", has no certificate. Name the file of the authority, in PEM form.`,
  );
}

/** The client certificate and its key, which fit together. */
function identityOf(parameters: URLSearchParams): ConnectionOptions {
  const [certFile, keyFile] = [parameters.get('sslcert'), parameters.get('sslkey')];
  if (certFile === null && keyFile === null) return {};
  if (certFile === null || keyFile === null) {
    const [present, missing] = keyFile === null ? ['sslcert', 'sslkey'] : ['sslkey', 'sslcert'];
    throw new OperatorError(
      `STORE_URL has ${present} but not ${missing}; a client certificate needs both: sslcert=FILE and sslkey=FILE.`,
    );
  }
  const [cert, key] = [fileOf('sslcert', certFile), fileOf('sslkey', keyFile)];
  if (problemOf({ cert }) !== null) {
    throw new OperatorError(
      `The file of sslcert in STORE_URL, "${certFile}", has no certificate that can be read. Name the client certificate, in PEM form.`,
    );
  }
  const problem = problemOf({ cert, key });
  if (problem === 'ERR_OSSL_X509_KEY_VALUES_MISMATCH') {
    throw new OperatorError(
      `The key of sslkey in STORE_URL, "${keyFile}", does not belong to the certificate of sslcert, "${certFile}". Name the key that the certificate was made for.`,
    );
  }
  if (problem !== null) {
    throw new OperatorError(
      `The file of sslkey in STORE_URL, "${keyFile}", has no private key that can be read. Name the key of sslcert, in PEM form and without a passphrase.`,
    );
  }
  return { cert, key };
}

/** The code of OpenSSL, whose messages are not for operators; null if these can be used. */
function problemOf(files: ConnectionOptions): string | null {
  try {
    createSecureContext(files);
    return null;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'unknown';
  }
}

function fileOf(name: string, file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new OperatorError(`The file of ${name} in STORE_URL, "${file}", cannot be read.`, { cause: error });
  }
}
