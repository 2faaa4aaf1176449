/** Names of the API that the page goes through or offers as choices; the compiler keeps them in step with the API. */

import type { Key, LinkedIdentifier } from './api-types.ts';

export type Environment = Key['environment'];
export const ENVIRONMENTS = ['production', 'development'] as const satisfies readonly Environment[];

export type IdentifierType = LinkedIdentifier['type'];
export const IDENTIFIER_TYPES = [
  'user_id',
  'email',
  'phone_number',
  'anon_id',
] as const satisfies readonly IdentifierType[];
