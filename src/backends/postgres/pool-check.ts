/**
 * Checks a PostgreSQL server once, before anything relies on it, and explains what is misconfigured. Problems that may
 * resolve themselves (a server that is starting, a network outage) remain a `StoreUnavailableError`.
 */

import { OperatorError } from '../../errors.ts';
import { codeOf } from './pool-errors.ts';

const VERSION_MIN = 15;
const VERSION_STEP = 10_000;

/** The one query that the check needs. */
interface VersionQuery {
  query(statement: string): Promise<{ readonly rows: unknown[] }>;
}

export async function checkServer(pool: VersionQuery, address: string): Promise<void> {
  const { rows } = await pool.query(
    `SELECT current_setting('server_version_num')::int AS version, current_setting('server_encoding') AS encoding`,
  );
  const [row] = rows as { version: number; encoding: string }[];
  if (row === undefined) throw new Error('a SELECT without FROM gave no row');
  const mistake = serverMistake(Math.floor(row.version / VERSION_STEP), row.encoding, address);
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
export function explainRefusal(error: unknown, address: string): unknown {
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
  if (isCertificateCode(code)) {
    return `The certificate of PostgreSQL at ${address} is not trusted (${code}). Name the authority's file in STORE_URL with sslrootcert=FILE, and the host as the certificate has it.`;
  }
  return undefined;
}

function isCertificateCode(code: string): boolean {
  return code === 'ERR_TLS_CERT_ALTNAME_INVALID' || /(SELF_SIGNED|CERT_|UNABLE_TO_(VERIFY|GET_ISSUER))/.test(code);
}
