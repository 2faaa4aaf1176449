/** The OpenAPI document of an app that has nothing behind it: what there is to call does not depend on that. */

import type { OpenApiDocument } from '../../src/api/openapi-document.ts';
import { follow } from '../../src/api/openapi-types.ts';
import { type StartOptions, startApp } from './running-app.ts';

export async function openApiDocument(options: Pick<StartOptions, 'serverUrl'> = {}): Promise<OpenApiDocument> {
  const cleanups: (() => unknown)[] = [];
  const { call } = await startApp({ after: (cleanup) => void cleanups.push(cleanup as () => unknown) }, options);
  const { text } = await call('GET', '/openapi.json');
  for (const cleanup of cleanups) await cleanup();
  return JSON.parse(text) as OpenApiDocument;
}

/** A schema of the document with its references put in place, so that it can be checked on its own. */
export function inlined(document: OpenApiDocument, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => inlined(document, item));
  if (typeof value !== 'object' || value === null) return value;
  if ('$ref' in value) return inlined(document, follow(document.components.schemas, value as { $ref: string }));
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, inlined(document, inner)]));
}
