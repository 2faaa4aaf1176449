/** Whose address a request has, for slowing: who may say so, and what counts as one. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { addressOf } from '../../src/api/session-cookie.ts';

type Request = Parameters<typeof addressOf>[0];

function addressFor(remoteAddress: string | undefined, forwarded?: string): string {
  const headers = forwarded === undefined ? {} : { 'x-forwarded-for': forwarded };
  return addressOf({ headers, socket: { remoteAddress } } as Request);
}

suite('The address of a client', () => {
  const CASES: [string, string | undefined, string | undefined, string][] = [
    ['is that of the connection', '203.0.113.7', undefined, '203.0.113.7'],
    ['is that of the connection, whatever a stranger claims', '203.0.113.7', '198.51.100.1', '203.0.113.7'],
    ['is the last one that a proxy on this machine tells', '127.0.0.1', '192.0.2.1, 203.0.113.7', '203.0.113.7'],
    ['is the one that a proxy in a private network tells', '::ffff:10.1.2.3', '203.0.113.7', '203.0.113.7'],
    ['is the one that a proxy tells over IPv6', '::1', '203.0.113.7', '203.0.113.7'],
    ['is without the port that a proxy tells', '127.0.0.1', '203.0.113.7:50123', '203.0.113.7'],
    ['is without port and brackets over IPv6', '127.0.0.1', '[2001:db8:1:2::7]:50123', '2001:db8:1:2'],
    ['is without brackets over IPv6', '127.0.0.1', '[2001:db8:1:2::7]', '2001:db8:1:2'],
    ['is that of the proxy where it tells nonsense', '127.0.0.1', 'unknown', '127.0.0.1'],
    ['is that of the proxy where it tells nothing', '127.0.0.1', '', '127.0.0.1'],
    ['is IPv4 inside of IPv6, too', '::ffff:203.0.113.7', undefined, '203.0.113.7'],
    ['of IPv6 is its network', '2001:db8:1:2:3:4:5:6', undefined, '2001:db8:1:2'],
    ['of IPv6 is its network, however it is written', '2001:0DB8:1::6', undefined, '2001:db8:1:0'],
    ['is empty when the connection is gone', undefined, undefined, ''],
  ];
  for (const [what, remote, forwarded, expected] of CASES) {
    test(what, () => assert.equal(addressFor(remote, forwarded), expected));
  }
});
