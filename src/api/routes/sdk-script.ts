/**
 * Serves the SDK for pages, `sdk/dist/sluice.js`, as `/ingest/sluice.js`: from the server that takes the events, so that a
 * page needs no other host. Any site may load it. It is read at the first request and kept in memory.
 *
 * Without a hash in the address it is cached for an hour. With `?v=` and the beginning of its hash (in the `ETag`) it is
 * cached for a year; a hash of another version gets the current script, and no cache keeps it for long.
 */

import { readFile } from 'node:fs/promises';
import type { FastifyInstance } from 'fastify';
import { SDK_SCRIPT_PATH } from '../../config/roles.ts';
import { CACHED_FOREVER, readOnce, sendNotBuilt, StaticFile } from '../static-file.ts';

const BUILT_SCRIPT = new URL('../../../sdk/dist/sluice.js', import.meta.url);
const NOT_BUILT = 'The SDK is not built yet. Run: npm run build:sdk\n';
/** Shorter ones would match by chance. */
const HASH_CHARACTERS_MIN = 12;
const CACHED_BRIEFLY = 'public, max-age=3600';

export interface SdkScriptParts {
  /** Where the built script is; the place in this package unless given. */
  readonly sdkScript?: URL;
}

export function registerSdkScript(app: FastifyInstance, { sdkScript = BUILT_SCRIPT }: SdkScriptParts): void {
  const script = readOnce(async () => new StaticFile('sluice.js', await readFile(sdkScript)));

  app.get<{ Querystring: { v?: unknown } }>(SDK_SCRIPT_PATH, async (request, reply) => {
    // A page of any site may load it, also with crossorigin and integrity on its tag.
    reply.headers({ 'access-control-allow-origin': '*', 'cross-origin-resource-policy': 'cross-origin' });
    const file = await script();
    if (file === null) return sendNotBuilt(reply, NOT_BUILT);
    const { v: hash } = request.query;
    const isCurrent = typeof hash === 'string' && hash.length >= HASH_CHARACTERS_MIN && file.digest.startsWith(hash);
    reply.header('cache-control', isCurrent ? CACHED_FOREVER : CACHED_BRIEFLY);
    return file.send(request, reply);
  });
}
