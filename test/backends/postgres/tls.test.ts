/** Encrypted connections to a PostgreSQL whose certificate an authority of our own has signed, for one of its names. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite, type TestContext, test } from 'node:test';
import { promisify } from 'node:util';
import { openPool, type PostgresPool } from '../../../src/backends/postgres/pool.ts';
import { readPostgresUrl } from '../../../src/backends/postgres/url.ts';
import { eventually } from '../../server.ts';
import { ownPostgres, whyNoPostgres } from '../../servers/postgres.ts';
import { findTool } from '../../tools.ts';
import { testPoolOptions } from './database.ts';

const run = promisify(execFile);
const openssl = findTool('openssl');

interface Certificates {
  readonly authority: string;
  readonly otherAuthority: string;
  readonly certificate: string;
  readonly key: string;
  /** `sslcert` and `sslkey` of a client: signed by the authority, and by the other one. */
  readonly client: string;
  readonly otherClient: string;
}

/** For 127.0.0.1 alone, not for localhost. */
async function makeCertificates(folder: string, tool: string): Promise<Certificates> {
  const at = (name: string): string => join(folder, name);
  const signed = async (name: string, ...more: string[]): Promise<void> => {
    const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', at(`${name}.key`)];
    await run(tool, ['req', '-x509', ...key, '-out', at(`${name}.pem`), '-days', '2', '-subj', `/CN=${name}`, ...more]);
  };
  await signed('authority');
  await signed('other');
  await writeFile(at('empty.cnf'), '[req]\ndistinguished_name = dn\n[dn]\n');
  await signed(
    'server',
    ...['-config', at('empty.cnf'), '-CA', at('authority.pem'), '-CAkey', at('authority.key')],
    ...['-addext', 'subjectAltName=IP:127.0.0.1', '-addext', 'basicConstraints=CA:FALSE'],
  );
  const client = async (name: string, authority: string): Promise<string> => {
    const signer = ['-CA', at(`${authority}.pem`), '-CAkey', at(`${authority}.key`)];
    await signed(name, '-config', at('empty.cnf'), ...signer, '-addext', 'basicConstraints=CA:FALSE');
    return `sslcert=${at(`${name}.pem`)}&sslkey=${at(`${name}.key`)}`;
  };
  return {
    client: await client('client', 'authority'),
    otherClient: await client('stranger', 'other'),
    authority: at('authority.pem'),
    otherAuthority: at('other.pem'),
    certificate: await readFile(at('server.pem'), 'utf8'),
    key: await readFile(at('server.key'), 'utf8'),
  };
}

/** The server writes the files itself: it belongs to another user, and insists on owning its key. */
async function switchOnTls(pool: PostgresPool, { authority, certificate, key }: Certificates): Promise<void> {
  for (const [name, text] of [
    ['root.crt', await readFile(authority, 'utf8')],
    ['server.crt', certificate],
    ['server.key', key],
  ] as const) {
    const lines = `SELECT unnest(string_to_array('${text.trim()}', E'\\n'))`;
    await pool.query(`COPY (${lines}) TO PROGRAM 'umask 077 && cat > ${name}'`);
  }
  await pool.query("ALTER SYSTEM SET ssl_ca_file = 'root.crt'");
  await pool.query('ALTER SYSTEM SET ssl = on');
  await pool.query('SELECT pg_reload_conf()');
}

async function isEncrypted(url: string): Promise<boolean | undefined> {
  const pool = await openPool(testPoolOptions(url, { max: 1 }));
  try {
    const { rows } = await pool.query<{ ssl: boolean }>('SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()');
    return rows[0]?.ssl;
  } finally {
    await pool.close();
  }
}

async function setUp(context: TestContext, tool: string) {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-tls-'));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const server = await ownPostgres();
  context.after(() => server.close());
  return { server, certificates: await makeCertificates(folder, tool) };
}

suite('Encrypted connections to PostgreSQL', {
  skip: whyNoPostgres('own') || (openssl === undefined ? 'needs openssl' : false),
}, () => {
  test('the server’s certificate is checked as far as sslmode says', async (context) => {
    const { server, certificates } = await setUp(context, openssl ?? '');
    const { authority, otherAuthority } = certificates;
    const to = (parameters: string, host = '127.0.0.1'): string => {
      const url = new URL(server.url);
      url.hostname = host;
      url.search = parameters;
      return url.href;
    };
    await assert.rejects(isEncrypted(to('sslmode=require')), { name: 'OperatorError', message: /does not offer encr/ });

    const pool = await openPool(testPoolOptions(server.url));
    context.after(() => pool.close());
    await switchOnTls(pool, certificates);
    await eventually('the server offers encryption', () => isEncrypted(to('sslmode=require')).catch(() => false));
    assert.equal(await isEncrypted(to('')), false);
    const verified = `sslmode=verify-full&sslrootcert=${authority}`;
    assert.equal(await isEncrypted(to(verified)), true);
    assert.equal(await isEncrypted(to(`${verified}&channel_binding=require`)), true);
    assert.equal(await isEncrypted(to(`sslmode=verify-ca&sslrootcert=${authority}`, 'localhost')), true);

    const untrusted = { name: 'OperatorError', message: /is not trusted.*sslrootcert=FILE/ };
    await assert.rejects(isEncrypted(to('sslmode=verify-full')), untrusted);
    await assert.rejects(isEncrypted(to(verified, 'localhost')), untrusted);
    for (const mode of ['require', 'verify-ca', 'verify-full']) {
      await assert.rejects(isEncrypted(to(`sslmode=${mode}&sslrootcert=${otherAuthority}`)), untrusted, mode);
    }

    assert.equal(await isEncrypted(to(`${verified}&${certificates.client}`)), true);
    await assert.rejects(isEncrypted(to(`${verified}&${certificates.otherClient}`)), {
      name: 'OperatorError',
      message: /refuses the client certificate \(unknown ca\)\. Set sslcert .* sslkey to its key\.$/,
    });

    await pool.query(`COPY (SELECT 'hostssl all all all scram-sha-256') TO PROGRAM 'cat > pg_hba.conf'`);
    await pool.query('SELECT pg_reload_conf()');
    await eventually('the server insists on it', () =>
      isEncrypted(to('')).then(
        () => false,
        (error: Error) => /may want an encrypted connection: add sslmode=verify-full/.test(error.message),
      ),
    );
    assert.equal(await isEncrypted(to(verified)), true);
  });

  test('a client certificate that cannot be used is refused by name when STORE_URL is read', async (context) => {
    const folder = await mkdtemp(join(tmpdir(), 'sluice-tls-'));
    context.after(() => rm(folder, { recursive: true, force: true }));
    const { authority, client, otherClient } = await makeCertificates(folder, openssl ?? '');
    const read = (parameters: string) => readPostgresUrl(`postgres://db.example/events?sslmode=require&${parameters}`);
    const [[cert, key], [otherCert]] = [client.split('&'), otherClient.split('&')] as [[string, string], [string]];
    assert.ok(read(client).connection.ssl);
    for (const [parameters, message] of [
      [cert, /has sslcert but not sslkey/],
      [key, /has sslkey but not sslcert/],
      [`${otherCert}&${key}`, /key of sslkey .*client\.key", does not belong to the certificate of sslcert/],
      [`sslcert=${key.slice('sslkey='.length)}&${key}`, /file of sslcert .*, has no certificate that can be read/],
      [`${cert}&sslkey=${authority}`, /file of sslkey .*, has no private key that can be read/],
      [`sslrootcert=${key.slice('sslkey='.length)}`, /file of sslrootcert .*, has no certificate\./],
    ] as const) {
      assert.throws(() => read(parameters), { name: 'OperatorError', message }, parameters);
    }
  });
});
