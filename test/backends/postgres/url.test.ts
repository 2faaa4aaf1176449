/** What STORE_URL may contain, and the errors for anything else, which never contain its secrets. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { readPostgresUrl } from '../../../src/backends/postgres/url.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';

test('an address is taken apart, percent-encoding and all', () => {
  const { connection, address } = readPostgresUrl('postgresql://ada:p%40ss%2Fw%25rd@db.example:6432/my%20events');
  const { host, port, user, password, database, ssl } = connection;
  assert.deepEqual(
    { host, port, user, password, database, ssl },
    { host: 'db.example', port: 6432, user: 'ada', password: 'p@ss/w%rd', database: 'my events', ssl: false },
  );
  assert.equal(address, 'db.example:6432/my events');
  const plain = readPostgresUrl('postgres://db.example/events');
  assert.equal(plain.connection.port, 5432);
  assert.ok(!('password' in plain.connection) && !('user' in plain.connection));
  const patient = readPostgresUrl('postgres://db.example/events?connect_timeout=20&channel_binding=require');
  assert.equal(patient.connection.connectionTimeoutMillis, 20_000);
  assert.deepEqual([plain.connection.enableChannelBinding, patient.connection.enableChannelBinding], [false, true]);
  assert.equal(readPostgresUrl('postgres://ada@[::1]/events').connection.host, '::1');
  assert.equal(readPostgresUrl('postgres:///events?host=/run/postgresql').connection.host, '/run/postgresql');
  assert.equal(readPostgresUrl('postgres://ada@%2Frun%2Fpostgresql/events').connection.host, '/run/postgresql');
});

test('encryption follows sslmode', (context) => {
  const tlsOf = (query: string) => readPostgresUrl(`postgres://ada@db.example/events?${query}`).connection.ssl;
  const folder = temporaryFolder();
  context.after(() => removeFolder(folder));
  const file = join(folder, 'ca.pem');
  writeFileSync(file, '-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n');
  assert.equal(tlsOf('sslmode=disable'), false);
  assert.deepEqual(tlsOf('sslmode=require'), { rejectUnauthorized: false });
  assert.deepEqual(tlsOf('sslmode=verify-full'), {});
  assert.deepEqual(tlsOf('sslmode=verify-full&sslrootcert=system'), {});
  const checked = tlsOf(`sslmode=require&sslrootcert=${file}`);
  assert.ok(typeof checked === 'object' && !('rejectUnauthorized' in checked) && checked.ca !== undefined);
});

test('what is wrong with an address is reported, without its user and password', () => {
  const mistakes: [url: string, words: RegExp][] = [
    ['', /not an address of a PostgreSQL database/],
    ['mysql://mallory:geheim@db.example/events', /not an address of a PostgreSQL database/],
    ['postgres://mallory:ge/heim@db.example/events', /percent-encoded/],
    ['postgres://mallory:12/geheim@db.example/events', /percent-encoded/],
    ['postgres://mallory:12/geheim@db.example', /percent-encoded/],
    ['postgres://mallory:12?geheim@db.example/events', /percent-encoded/],
    ['postgres://mallory:12#geheim@db.example/events', /percent-encoded/],
    ['postgres://mallory:geheim@db.example', /names no database/],
    ['postgres://mallory:geheim@db.example/', /names no database/],
    ['postgres:///events', /names no host/],
    ['postgres://mallory:geheim@a.example,b.example/events', /several hosts/],
    ['postgres://mallory:geheim%@db.example/events', /write a % as %25/],
    ['postgres://mallory:geheim@db.example/events?port=0', /port in STORE_URL/],
    ['postgres://mallory:geheim@db.example/events?connect_timeout=soon', /whole number of seconds/],
    ['postgres://mallory:geheim@db.example/events?schema=x', /"schema", which is not known/],
    ['postgres://mallory:geheim@db.example/events?sslmode=prefer', /sslmode in STORE_URL must be/],
    ['postgres://mallory:geheim@db.example/events?sslmode=verify-ca', /needs sslrootcert=FILE/],
    ['postgres://mallory:geheim@db.example/events?sslrootcert=ca.pem', /cannot be read|add sslmode=verify-full/],
    [
      'postgres://mallory:geheim@db.example/events?sslmode=verify-full&sslrootcert=/no/such',
      /"\/no\/such", cannot be read/,
    ],
  ];
  for (const [url, words] of mistakes) {
    assert.throws(
      () => readPostgresUrl(url),
      (error: Error) => {
        assert.equal(error.name, 'OperatorError');
        assert.match(error.message, words, url);
        const all = inspect(error, { depth: 20, showHidden: true });
        for (const secret of ['mallory', 'heim']) assert.ok(!all.includes(secret), all);
        return true;
      },
      url,
    );
  }
});
