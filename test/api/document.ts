/** The OpenAPI document of an app that has nothing behind it: what there is to call does not depend on that. */

import { generatedDocument } from '../../src/api/openapi-document.ts';
import type { OpenApiDocument } from '../../src/api/openapi-types.ts';
import { type StartOptions, startApp } from './running-app.ts';

export async function openApiDocument(options: Pick<StartOptions, 'serverUrl'> = {}): Promise<OpenApiDocument> {
  const cleanups: (() => unknown)[] = [];
  const { app } = await startApp({ after: (cleanup: () => unknown) => cleanups.push(cleanup) } as never, options);
  const document = generatedDocument(app);
  for (const cleanup of cleanups) await cleanup();
  return document;
}
