/** LOG_URL: parsing, the connection options, and the errors for invalid ones. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { connectionOptionsOf, parseKafkaUrl } from '../../../src/backends/kafka/url.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';

suite('LOG_URL', () => {
  test('a host and a topic are enough', () => {
    assert.deepEqual(parseKafkaUrl('kafka://events.example.com/sluice'), {
      brokers: [{ host: 'events.example.com', port: 9092 }],
      topic: 'sluice',
      tls: null,
      sasl: null,
      partitions: null,
      replication: null,
    });
  });

  test('it may have several brokers, a login, certificates and the size of a new topic', () => {
    const url =
      'kafka://ada:p%40ss%3A%2Fword@one:9093,[::1]:9094,10.0.0.3/my.topic_1-a?tls=true&ca=%2Fetc%2Fca.pem&sasl=scram-sha-512&partitions=24&replication=3';
    assert.deepEqual(parseKafkaUrl(url), {
      brokers: [
        { host: 'one', port: 9093 },
        { host: '::1', port: 9094 },
        { host: '10.0.0.3', port: 9092 },
      ],
      topic: 'my.topic_1-a',
      tls: { caFile: '/etc/ca.pem' },
      sasl: { mechanism: 'SCRAM-SHA-512', user: 'ada', password: 'p@ss:/word' },
      partitions: 24,
      replication: 3,
    });
  });

  test('certificates alone mean TLS', () => {
    assert.deepEqual(parseKafkaUrl('kafka://host/topic?ca=ca.pem').tls, { caFile: 'ca.pem' });
  });

  const invalid: readonly (readonly [what: string, url: string, message: RegExp])[] = [
    ['another scheme', 'http://host/topic', /must start with kafka:\/\//],
    ['no topic', 'kafka://host:9092', /must end with the name of a topic/],
    ['an empty topic', 'kafka://host:9092/', /must end with the name of a topic/],
    ['a topic with a space', 'kafka://host/to%20pic', /must end with the name of a topic/],
    ['the topic ..', 'kafka://host/..', /must end with the name of a topic/],
    ['no host', 'kafka:///topic', /its broker is not a host and a port/],
    ['an invalid broker', 'kafka://one,tw o/topic', /its broker 2 of 2 is not a host and a port/],
    ['a port out of range', 'kafka://host:70000/topic', /the port of its broker must be 1 to 65535/],
    [
      'an unknown parameter',
      'kafka://host/topic?group=x',
      /unknown parameter; known are tls, ca, sasl, partitions, replication/,
    ],
    ['a parameter given twice', 'kafka://host/topic?tls=true&tls=true', /has the parameter tls twice/],
    ['a strange tls', 'kafka://host/topic?tls=yes', /must have tls=true or tls=false/],
    ['certificates without TLS', 'kafka://host/topic?tls=false&ca=x', /has certificates \(ca\) but tls=false/],
    ['an empty certificate file', 'kafka://host/topic?ca=', /must have a certificate file/],
    ['too many partitions', 'kafka://host/topic?partitions=100000', /must have a number from 1 to 10000 as partitions/],
    ['no partitions', 'kafka://host/topic?partitions=0', /must have a number from 1 to 10000 as partitions/],
    [
      'a replication that is no number',
      'kafka://host/topic?replication=all',
      /must have a number from 1 to 100 as replication/,
    ],
    ['an unknown mechanism', 'kafka://a:b@host/topic?sasl=gssapi', /must have one of sasl=plain/],
    ['a mechanism without a user', 'kafka://host/topic?sasl=plain', /has sasl but no user and password/],
    ['a user without a mechanism', 'kafka://a:secret@host/topic', /has a user, so it must have one of sasl=plain/],
    ['a user without a password', 'kafka://a@host/topic?sasl=plain', /must have a user and a password/],
    ['a % that escapes nothing', 'kafka://a:secret%zz@host/topic?sasl=plain', /in the password a % is not followed/],
    ['a slash in the password', 'kafka://a:sec/ret@host/topic?sasl=plain', /write it as %2F/],
    ['a question mark in the password', 'kafka://a:sec?ret@host/topic?sasl=plain', /write it as %2F, %3F or %40/],
  ];
  for (const [what, url, message] of invalid) {
    test(`${what}: an error that shows no password`, () => {
      assert.throws(
        () => parseKafkaUrl(url),
        (error: Error) => {
          assert.equal(error.name, 'OperatorError');
          assert.match(error.message, message);
          assert.match(error.message, /^LOG_URL /);
          assert.doesNotMatch(error.message, /sec|ret@/);
          return true;
        },
      );
    });
  }

  test('the client gets the login and the certificates', () => {
    const folder = temporaryFolder();
    try {
      const caFile = join(folder, 'ca.pem');
      writeFileSync(caFile, 'certificates');
      const options = connectionOptionsOf(
        parseKafkaUrl(`kafka://ada:word@host/topic?sasl=scram-sha-256&ca=${encodeURIComponent(caFile)}`),
      );
      assert.deepEqual(options.sasl, { mechanism: 'SCRAM-SHA-256', username: 'ada', password: 'word' });
      assert.deepEqual(options.tls, { ca: 'certificates' });
    } finally {
      removeFolder(folder);
    }
  });

  test('TLS without certificates uses those that Node trusts', () => {
    assert.deepEqual(connectionOptionsOf(parseKafkaUrl('kafka://host/topic?tls=true')).tls, {});
    const plain = connectionOptionsOf(parseKafkaUrl('kafka://host/topic'));
    assert.equal(plain.tls, undefined);
    assert.equal(plain.sasl, undefined);
  });

  test('an unreadable certificate file is named', () => {
    assert.throws(() => connectionOptionsOf(parseKafkaUrl('kafka://host/topic?ca=/none/such.pem')), {
      name: 'OperatorError',
      message: /\(ca=\/none\/such\.pem\) cannot be read: ENOENT/,
    });
  });
});
