/** Who a client is, by what proxies say and by who may say so; and which lists of proxies are taken. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { loadConfig } from '../../src/config/config.ts';
import { OperatorError } from '../../src/errors.ts';
import { TrustedProxies } from '../../src/config/trusted-proxies.ts';

suite('The address of a client', () => {
  const CASES: [what: string, trusted: string, connection: string, forwarded: string, expected: string][] = [
    ['is that of the connection, where no proxy is trusted', '', '127.0.0.1', '203.0.113.7', '127.0.0.1'],
    ['is that of the connection, also in a private network', '', '10.1.2.3', '203.0.113.7', '10.1.2.3'],
    ['is that of the connection, whatever a stranger claims', 'loopback', '203.0.113.7', '198.51.100.1', '203.0.113.7'],
    ['is the last one that the proxy tells', 'loopback', '127.0.0.1', '192.0.2.1, 203.0.113.7', '203.0.113.7'],
    [
      'is behind two trusted proxies',
      'loopback, 10.0.0.0/8',
      '127.0.0.1',
      '1.2.3.4, 203.0.113.7, 10.9.9.9',
      '203.0.113.7',
    ],
    ['is the second proxy where that is not trusted', 'loopback', '127.0.0.1', '203.0.113.7, 10.9.9.9', '10.9.9.9'],
    ['is the first one where all are trusted', 'uniquelocal', '10.0.0.1', '192.168.0.5, 10.0.0.2', '192.168.0.5'],
    ['is the one that a proxy tells over IPv6', 'loopback', '::1', '203.0.113.7', '203.0.113.7'],
    ['is named by a proxy that is IPv4 inside of IPv6', '10.0.0.0/8', '::ffff:10.1.2.3', '203.0.113.7', '203.0.113.7'],
    ['is named by a proxy with one address', '192.0.2.7', '192.0.2.7', '203.0.113.7', '203.0.113.7'],
    ['is not named by the neighbour of that proxy', '192.0.2.7', '192.0.2.8', '203.0.113.7', '192.0.2.8'],
    ['is named by a proxy in a network of IPv6', '2001:db8::/32', '2001:db8::7', '203.0.113.7', '203.0.113.7'],
    ['is without the port that a proxy tells', 'loopback', '127.0.0.1', '203.0.113.7:50123', '203.0.113.7'],
    ['is without port and brackets over IPv6', 'loopback', '127.0.0.1', '[2001:db8::7]:50123', '2001:db8::7'],
    ['is that of the proxy where it tells nonsense', 'loopback', '127.0.0.1', '203.0.113.7, unknown', '127.0.0.1'],
    ['is that of the proxy where it tells nothing', 'loopback', '127.0.0.1', '', '127.0.0.1'],
    ['is empty when the connection is gone', 'loopback', '', '203.0.113.7', ''],
  ];
  for (const [what, trusted, connection, forwarded, expected] of CASES) {
    test(what, () => assert.equal(new TrustedProxies(trusted).clientOf(connection, forwarded), expected));
  }
});

suite('A list of trusted proxies', () => {
  const load = (list: string): string =>
    loadConfig({ env: { SLUICE_TRUSTED_PROXIES: list }, args: [] }).config.trustedProxies;

  test('may contain addresses, networks and named networks, or nothing', () => {
    for (const list of ['10.0.0.1', '10.0.0.0/8, ::1', 'loopback,LinkLocal , uniquelocal', 'fd00::/8', '0.0.0.0/0']) {
      assert.equal(load(list), list);
    }
    assert.equal(load('none'), '');
    assert.equal(loadConfig({ env: {}, args: [] }).config.trustedProxies, '');
  });

  for (const list of [
    'proxy.example',
    '10.0.0.0/33',
    '10.0.0/8',
    '10.0.0.1;10.0.0.2',
    '::1/129',
    '10.0.0.1/',
    'true',
    '1',
  ]) {
    test(`such as ${list} is rejected with a message`, () => {
      assert.throws(
        () => load(list),
        (error) =>
          error instanceof OperatorError &&
          error.message.includes(
            `SLUICE_TRUSTED_PROXIES is "${list}"; expected addresses and networks such as 10.0.0.0/8`,
          ),
      );
    });
  }
});
