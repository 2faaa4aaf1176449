/**
 * Regular expressions whose time is linear in the text, whatever the pattern: a tenant writes the pattern, anyone with a
 * publishable key writes the text, and the engine's own backtracking can take years for the two of them. RE2 matches
 * them; what it does not have (look-around, backreferences) is refused. A pattern has to be valid in JavaScript too, so
 * that other tools can read the plan. Limits: `PATTERN_LIMITS`.
 *
 * Most patterns are so plain that the engine has nothing to try twice (`PLAIN_PATTERN`). It matches those itself, which
 * takes a tenth of the time, in texts that are not long.
 */

import { RE2JS } from 're2js';
import { messageOf } from '../errors.ts';

const PATTERN_LIMITS = {
  charactersMax: 500,
  /** Instructions of the compiled pattern: a check takes at most so many steps per character. */
  instructionsMax: 1_000,
} as const;

const ATOM = String.raw`(?:[^\\^$*+?()[\]{}|]|\\[dDsSwW]|\\[^\p{L}\p{N}]|\[(?:[^\\\]]|\\.)*\])`;
/** From the start on, a fixed number of characters; only the last one may be repeated as often as it fits. */
const PLAIN_PATTERN = new RegExp(String.raw`^\^(?:${ATOM}(?:\{\d+\})?)*(?:${ATOM}(?:[*+?]|\{\d+,\d*\}))?\$?$`, 'u');
/** The engine remembers a place for each character of a repetition. */
const PLAIN_CHARACTERS_MAX = 10_000;

export class PatternError extends Error {}

export class LinearPattern {
  readonly #source: string;
  readonly #pattern: RE2JS;
  readonly #plain: RegExp | null;

  constructor(source: string) {
    this.#source = source;
    if (source.length > PATTERN_LIMITS.charactersMax) {
      throw new PatternError(`is longer than ${PATTERN_LIMITS.charactersMax} characters`);
    }
    let own: RegExp;
    try {
      own = new RegExp(source, 'u');
    } catch (error) {
      throw new PatternError(`is not a regular expression: ${messageOf(error)}`);
    }
    this.#plain = PLAIN_PATTERN.test(source) ? own : null;
    try {
      this.#pattern = RE2JS.compile(RE2JS.translateRegExp(source));
    } catch (error) {
      throw new PatternError(
        `uses what RE2 does not have, such as look-around, backreferences or large counts: ${messageOf(error)}`,
      );
    }
    if (this.#pattern.programSize() > PATTERN_LIMITS.instructionsMax) {
      throw new PatternError('is too large: lower its counts, or split it');
    }
  }

  /** ajv distinguishes patterns by this text. */
  toString(): string {
    return `/${this.#source}/u`;
  }

  test(text: string): boolean {
    if (this.#plain !== null && text.length <= PLAIN_CHARACTERS_MAX) return this.#plain.test(text);
    return this.#pattern.test(text);
  }
}

export function problemOfPattern(source: string): string | null {
  try {
    void new LinearPattern(source);
    return null;
  } catch (error) {
    if (!(error instanceof PatternError)) throw error;
    return error.message;
  }
}
