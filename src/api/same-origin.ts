/**
 * Whether a request that changes something comes from our own page: the rule against CSRF, pure. Browsers say where a
 * request comes from in `Origin`, which no page can forge; where that is left out, `Sec-Fetch-Site` says enough. Our own
 * origins are that of the Host header and the one that the operator set. Also derives the URL that people reach this server at.
 */

import type { IncomingHttpHeaders } from 'node:http';

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

/** Whether the browser reached us by TLS, as far as the server can know. */
export function isSecure(headers: IncomingHttpHeaders, publicUrl: string): boolean {
  return publicUrl.startsWith('https:') || isForwardedSecurely(headers);
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
