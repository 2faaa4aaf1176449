/**
 * The settings that decide how identifiers are matched, as `identity/match-keys.ts` wants them. Processor, API and
 * command line must agree on them, so there is one place.
 */

import type { Config } from './config.ts';
import type { MatchOptions } from '../identity/match-keys.ts';

export function matchOptionsOf({
  defaultCountry,
  junkValues,
}: Pick<Config, 'defaultCountry' | 'junkValues'>): MatchOptions {
  const values = junkValues.split(',').map((value) => value.trim().toLowerCase());
  return {
    defaultCountry: defaultCountry === '' ? null : defaultCountry,
    junkValues: new Set(values.filter((value) => value !== '')),
  };
}
