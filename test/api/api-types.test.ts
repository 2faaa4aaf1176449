/** The types of the page are those of the server: generated from the OpenAPI document, and committed. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { apiTypes } from '../../dashboard/generate-api-types.ts';
import { openApiDocument } from './document.ts';

test('the API types of the dashboard are in step with the OpenAPI document', async () => {
  const committed = readFileSync(new URL('../../dashboard/src/api-types.ts', import.meta.url), 'utf8');
  const generated = await apiTypes(JSON.stringify(await openApiDocument()));
  assert.ok(committed === generated, 'dashboard/src/api-types.ts is out of step: run npm run generate:api-types');
});
