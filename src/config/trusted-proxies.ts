/**
 * Which proxies are trusted to name their client, and which address a client has by their headers. A proxy adds the
 * address that it was called from to the end of `X-Forwarded-For`; so the list is read from its end, as long as the one
 * who said it is trusted, and the first address that is not is the client's. What a client wrote into the header itself
 * stands before that and is never reached. Without trusted proxies the client is who made the connection. Pure.
 */

import { BlockList, isIP, isIPv6 } from 'node:net';

/** As Express and Fastify call them. */
const NETWORKS: Readonly<Record<string, readonly string[]>> = {
  loopback: ['127.0.0.0/8', '::1/128'],
  linklocal: ['169.254.0.0/16', 'fe80::/10'],
  uniquelocal: ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'],
};

export const PROXIES_EXPECTED =
  'addresses and networks such as 10.0.0.0/8, loopback, linklocal or uniquelocal, separated by commas, or "none"';

export class TrustedProxies {
  readonly #list = new BlockList();

  /** `list` as in the setting; one that is not well-formed is a bug here. */
  constructor(list: string) {
    for (const { address, bits } of networksOf(list) ?? []) {
      this.#list.addSubnet(address, bits, isIPv6(address) ? 'ipv6' : 'ipv4');
    }
  }

  has(address: string): boolean {
    const plain = plainAddress(address);
    return isIP(plain) !== 0 && this.#list.check(plain, isIPv6(plain) ? 'ipv6' : 'ipv4');
  }

  /** The address of the client, by the connection and by what the trusted proxies on the way say. */
  clientOf(connection: string, forwardedFor: string): string {
    let client = plainAddress(connection);
    for (const entry of forwardedFor.split(',').toReversed()) {
      const address = plainAddress(entry);
      if (!this.has(client) || isIP(address) === 0) break;
      client = address;
    }
    return client;
  }
}

/** Undefined for a list that is not as `PROXIES_EXPECTED` says. */
export function networksOf(list: string): { readonly address: string; readonly bits: number }[] | undefined {
  const entries = list.split(',').map((entry) => entry.trim().toLowerCase());
  const networks = entries
    .filter((entry) => entry !== '')
    .flatMap((entry) => NETWORKS[entry] ?? [entry])
    .map(networkOf);
  return networks.every((network) => network !== undefined) ? networks : undefined;
}

function networkOf(text: string): { address: string; bits: number } | undefined {
  const [, address = '', given] = /^([0-9a-f.:]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const version = isIP(address);
  if (version === 0) return undefined;
  const bitsMax = version === 6 ? 128 : 32;
  const bits = given === undefined ? bitsMax : Number(given);
  return bits <= bitsMax ? { address, bits } : undefined;
}

/** Servers that listen on IPv6 see IPv4 addresses inside of it; some proxies add the port. */
function plainAddress(address: string): string {
  const trimmed = address.trim();
  const host = /^(?:\[([^\]]+)\]|(\d+(?:\.\d+){3}))(?::\d+)?$/.exec(trimmed);
  return (host?.[1] ?? host?.[2] ?? trimmed).replace(/^::ffff:(?=\d+\.)/i, '');
}
