import type { OpenApiDocument } from './openapi-types.ts';
export function docsPage(document: OpenApiDocument): string {
  return document.info.title;
}
export function docsPolicy(): string {
  return "default-src 'none'";
}
