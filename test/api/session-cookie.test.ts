/** Whose address a request has, for slowing: the client's, and of IPv6 its network. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { addressOf } from '../../src/api/session-cookie.ts';
import { TrustedProxies } from '../../src/config/trusted-proxies.ts';

type Request = Parameters<typeof addressOf>[0];

function addressFor(remoteAddress: string | undefined, forwarded?: string): string {
  const headers = forwarded === undefined ? {} : { 'x-forwarded-for': forwarded };
  return addressOf({ headers, socket: { remoteAddress } } as Request, new TrustedProxies('loopback'));
}

suite('The address that is slowed', () => {
  const CASES: [string, string | undefined, string | undefined, string][] = [
    ['is that of the connection', '203.0.113.7', undefined, '203.0.113.7'],
    ['is that of the connection, whatever a stranger claims', '203.0.113.7', '198.51.100.1', '203.0.113.7'],
    ['is the one that a trusted proxy tells', '127.0.0.1', '192.0.2.1, 203.0.113.7', '203.0.113.7'],
    ['is IPv4 inside of IPv6, too', '::ffff:203.0.113.7', undefined, '203.0.113.7'],
    ['of IPv6 is its network', '2001:db8:1:2:3:4:5:6', undefined, '2001:db8:1:2'],
    ['of IPv6 is its network, however it is written', '2001:0DB8:1::6', undefined, '2001:db8:1:0'],
    ['of IPv6 is its network, where a proxy tells it', '127.0.0.1', '[2001:db8:1:2::7]:50123', '2001:db8:1:2'],
    ['is empty when the connection is gone', undefined, undefined, ''],
  ];
  for (const [what, remote, forwarded, expected] of CASES) {
    test(what, () => assert.equal(addressFor(remote, forwarded), expected));
  }
});
