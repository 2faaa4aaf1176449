/**
 * The types of the HTTP API for the page, generated from the components of the OpenAPI document. A test runs it on the
 * document of the server and fails when `src/api-types.ts` is out of step; `npm run generate:api-types` writes it.
 */

import openapiTS, { astToString } from 'openapi-typescript';

const HEADER = `/**
 * What the server responds with, as /openapi.json describes it. Generated: change the schema of the route, then run
 * \`npm run generate:api-types\`. Values that clients chose (properties, payloads) are \`unknown\`: show them with \`Json\` or
 * as text, never as anything else. Numbers among them that a double cannot hold are \`ExactNumber\` (exact-json.ts).
 */

`;

/** `document` is an OpenAPI 3.1 document as JSON. */
export async function apiTypes(document: string): Promise<string> {
  const { openapi, info, components } = JSON.parse(document) as Record<string, object>;
  const { schemas } = components as { schemas: object };
  const source = JSON.stringify({ openapi, info, paths: {}, components: { schemas } });
  const nodes = await openapiTS(source, { immutable: true, rootTypes: true, rootTypesNoSchemaPrefix: true });
  return HEADER + astToString(nodes);
}
