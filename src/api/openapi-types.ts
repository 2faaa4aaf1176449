/**
 * The part of OpenAPI 3.1 that Sluice uses for operations, as types, and how a reference is followed. Types only as wide
 * as what `openapi-document.ts` writes and `docs-page.ts` reads; this is not a general OpenAPI model.
 */

interface Reference {
  readonly $ref: string;
}

export interface JsonSchema {
  readonly $ref?: string;
  readonly title?: string;
  readonly description?: string;
  readonly type?: string;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly format?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly items?: JsonSchema;
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly additionalProperties?: JsonSchema | boolean;
  readonly anyOf?: readonly JsonSchema[];
  readonly examples?: readonly unknown[];
  readonly [keyword: string]: unknown;
}

export interface MediaType {
  readonly schema: JsonSchema;
  readonly examples?: Readonly<Record<string, { readonly summary: string; readonly value: unknown }>>;
}

export interface Response {
  readonly description: string;
  readonly headers: Readonly<Record<string, Reference>>;
  readonly content?: Readonly<Record<string, MediaType>>;
}

interface Parameter {
  readonly name: string;
  readonly in: 'header' | 'query' | 'path';
  readonly required: boolean;
  readonly description: string;
  readonly schema: JsonSchema;
}

export interface Operation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description: string;
  readonly security: readonly Readonly<Record<string, readonly string[]>>[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: {
    readonly required: boolean;
    readonly description: string;
    readonly content: Readonly<Record<string, MediaType>>;
  };
  readonly responses: Readonly<Record<string, Response | Reference>>;
}

type Method = 'get' | 'post' | 'put' | 'patch' | 'delete';
export type PathItem = Readonly<Partial<Record<Method, Operation>>>;

export function parameter(
  where: Parameter['in'],
  name: string,
  description: string,
  schema: JsonSchema = { type: 'string' },
): Parameter {
  return { name, in: where, required: where === 'path', description, schema };
}

/** What a reference such as `#/components/schemas/User` stands for; throws if it stands for nothing. */
export function follow<T>(components: Readonly<Record<string, T>>, { $ref }: Reference): T {
  const name = $ref.slice($ref.lastIndexOf('/') + 1);
  const found = Object.hasOwn(components, name) ? components[name] : undefined;
  if (found === undefined) throw new Error(`the OpenAPI document has nothing at ${$ref}`);
  return found;
}
