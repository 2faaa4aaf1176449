/**
 * The cookie `sluice_session`, and the address that a request comes from. The cookie is out of reach of scripts, sent
 * along by other sites for plain links alone, and behind TLS sent over nothing else. Its value is a token that only the
 * browser has; what is stored is its hash.
 */

import type { IncomingHttpHeaders } from 'node:http';
import { isIPv6 } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { SESSION_MS } from '../sign-in/session.ts';
import type { TrustedProxies } from '../config/trusted-proxies.ts';
import { isSecure } from './same-origin.ts';

const NAME = 'sluice_session';

/** The token in the cookie, whatever it is; undefined if there is none. */
export function sessionTokenOf(headers: IncomingHttpHeaders): string | undefined {
  for (const pair of headers.cookie?.split(';') ?? []) {
    const at = pair.indexOf('=');
    if (at !== -1 && pair.slice(0, at).trim() === NAME) return pair.slice(at + 1).trim();
  }
  return undefined;
}

export function setSessionCookie(reply: FastifyReply, token: string, publicUrl: string): void {
  setCookie(reply, token, SESSION_MS / 1_000, publicUrl);
}

export function clearSessionCookie(reply: FastifyReply, publicUrl: string): void {
  setCookie(reply, '', 0, publicUrl);
}

function setCookie(reply: FastifyReply, value: string, seconds: number, publicUrl: string): void {
  const secure = isSecure(reply.request.headers, publicUrl) ? '; Secure' : '';
  reply.header('set-cookie', `${NAME}=${value}; Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Lax${secure}`);
}

/** The address of the client, for the delays after wrong passwords. */
export function addressOf(request: Pick<FastifyRequest, 'headers' | 'socket'>, proxies: TrustedProxies): string {
  const forwardedFor = String(request.headers['x-forwarded-for'] ?? '');
  const address = proxies.clientOf(request.socket.remoteAddress ?? '', forwardedFor);
  return isIPv6(address) ? networkOf(address) : address;
}

/** The first 64 bits: a client with one IPv6 address has its whole network. */
function networkOf(address: string): string {
  const [before = '', after] = address.split('::');
  const head = before === '' ? [] : before.split(':');
  const tail = after === undefined || after === '' ? [] : after.split(':');
  const groups = [...head, ...Array<string>(Math.max(0, 8 - head.length - tail.length)).fill('0'), ...tail];
  return groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':');
}
