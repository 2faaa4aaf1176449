/**
 * The cookie `sluice_session`, and what is known of the browser that sends it. The cookie is out of reach of scripts,
 * sent along by other sites for plain links alone, and behind TLS sent over nothing else. Its value is a token that only
 * the browser has; what is stored is its hash.
 *
 * The rule against CSRF: a request that changes something must come from our own page. Browsers say where a request comes
 * from in `Origin`, which no page can forge; where that is left out, `Sec-Fetch-Site` says enough. Our own origins are
 * that of the Host header and the one that the operator set.
 */

import type { IncomingHttpHeaders } from 'node:http';
import { isIPv6 } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { TrustedProxies } from '../config/trusted-proxies.ts';
import { SESSION_MS } from '../sign-in/session.ts';

const NAME = 'sluice_session';

export function sessionTokenOf(headers: IncomingHttpHeaders): string | undefined {
  for (const pair of headers.cookie?.split(';') ?? []) {
    const at = pair.indexOf('=');
    if (at !== -1 && pair.slice(0, at).trim() === NAME) return pair.slice(at + 1).trim();
  }
  return undefined;
}

export function clearSessionCookie(reply: FastifyReply, publicUrl: string): void {
  setSessionCookie(reply, '', publicUrl, 0);
}

export function setSessionCookie(
  reply: FastifyReply,
  token: string,
  publicUrl: string,
  seconds = SESSION_MS / 1_000,
): void {
  // As far as the server can know.
  const isTls = publicUrl.startsWith('https:') || isForwardedSecurely(reply.request.headers);
  const secure = isTls ? '; Secure' : '';
  reply.header('set-cookie', `${NAME}=${token}; Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Lax${secure}`);
}

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

export const NOT_SAME_ORIGIN =
  'this request must come from a page of this server; behind a proxy that terminates TLS, set SLUICE_PUBLIC_URL, or name the proxy in SLUICE_TRUSTED_PROXIES and let it pass X-Forwarded-Proto on';

const SAFE_METHODS = new Set(['GET', 'HEAD']);

/** `publicUrl` is SLUICE_PUBLIC_URL: an origin, or empty when it is not known. */
export function isSameOrigin(method: string, headers: IncomingHttpHeaders, publicUrl: string): boolean {
  if (SAFE_METHODS.has(method)) return true;
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin') return false;
  if (headers.origin === undefined) return site === 'same-origin';
  // What browsers send is as short as can be; parsed, so that a default port or capitals do not matter.
  const origin = URL.parse(headers.origin)?.origin;
  if (origin === undefined || origin === 'null') return false;
  return origin === hostOrigin(headers) || (publicUrl !== '' && origin === publicUrl);
}

/** Where people reach this server: as the operator says, or else where this request came to. */
export function ownUrl(headers: IncomingHttpHeaders, publicUrl: string): string {
  return publicUrl === '' ? (hostOrigin(headers) ?? '') : publicUrl;
}

function hostOrigin(headers: IncomingHttpHeaders): string | undefined {
  const scheme = isForwardedSecurely(headers) ? 'https' : 'http';
  return URL.parse(`${scheme}://${headers.host ?? ''}`)?.origin;
}

/** Several proxies make a list of it, the one that the browser spoke to first. */
function isForwardedSecurely(headers: IncomingHttpHeaders): boolean {
  const forwarded = String(headers['x-forwarded-proto'] ?? '');
  return forwarded.split(',')[0]?.trim().toLowerCase() === 'https';
}
