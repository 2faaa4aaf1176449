/**
 * Which web pages may read the responses of `/ingest/*`. Publishable keys are for pages: any origin, or those on the
 * key's list. A secret key on a page of another site has probably leaked: the data is taken, the page gets no CORS
 * headers, and the use is recorded.
 */

import type { ApiKey } from '../keys.ts';

/** `allowed` is the value of `Access-Control-Allow-Origin`. */
export function corsFor(key: ApiKey, origin: string, leaked: boolean): { allowed: string | null; refused: boolean } {
  if (leaked) return { allowed: null, refused: false };
  if (key.origins.length === 0) return { allowed: '*', refused: false };
  if (key.origins.includes(origin)) return { allowed: origin, refused: false };
  return { allowed: null, refused: true };
}

/** Whether a request comes from a page of another site than this server. */
export function isForeignOrigin(origin: string | undefined, host: string | undefined): boolean {
  if (origin === undefined) return false;
  // Parsed, because neither capitals nor a default port make it another site.
  const from = URL.parse(origin);
  return from === null || from.host !== URL.parse(`${from.protocol}//${host ?? ''}`)?.host;
}
