/** Writes the types of the API for the page, from the OpenAPI document of this very source: `npm run generate:api-types`. */

import { writeFileSync } from 'node:fs';
import { apiTypes } from '../../dashboard/generate-api-types.ts';
import { openApiDocument } from './document.ts';

const types = await apiTypes(JSON.stringify(await openApiDocument()));
writeFileSync(new URL('../../dashboard/src/api-types.ts', import.meta.url), types);
