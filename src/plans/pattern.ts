/**
 * Regular expressions whose time is linear in the text, whatever the pattern: a tenant writes the pattern, anyone with a
 * publishable key writes the text, and the engine's own backtracking can take years for the two of them. A pattern becomes
 * a nondeterministic automaton; a text is run through the sets of its states, which are remembered (a lazy DFA).
 *
 * Understood: literals, `.`, classes, \d \w \s (and negated), \t \n \r \f \v, \uXXXX, \u{…}, groups, alternation, `* + ?`
 * and `{n,m}` (lazy ones too: they match the same texts), `^` and `$`. Refused, by name: look-around, backreferences, \b,
 * \p. Invariant: `test` is what `new RegExp(pattern, 'u').test` says. Limits: `PATTERN_LIMITS`.
 */

export const PATTERN_LIMITS = {
  charactersMax: 500,
  statesMax: 500,
  groupDepthMax: 20,
  /** Of the lazy DFA: sets of states, and characters that lead on from each. */
  rememberedSetsMax: 100,
  rememberedCharactersMax: 256,
} as const;

/** A pattern that cannot be used; the message says why. */
export class PatternError extends Error {}

/** Code points from, to, from, to …; both ends included. */
type Ranges = readonly number[];

type Syntax =
  | { readonly kind: 'set'; readonly ranges: Ranges }
  | { readonly kind: 'start' | 'end' }
  | { readonly kind: 'sequence' | 'either'; readonly parts: readonly Syntax[] }
  | { readonly kind: 'repeat'; readonly part: Syntax; readonly min: number; readonly max: number };

/** What leads out of a state: a set of characters, an anchor, or nothing but the way to the next states. */
interface State {
  readonly ranges: Ranges | null;
  readonly anchor: 'start' | 'end' | null;
  next: number[];
}

/** A set of states that a text can be in, with where each character leads. */
interface StateSet {
  readonly states: readonly number[];
  /** Found before the text ends, or if it ended here. */
  readonly isMatch: boolean;
  readonly isMatchAtEnd: boolean;
  readonly next: Map<number, StateSet>;
}

const CODE_POINT_MAX = 0x10ffff;
const DIGIT: Ranges = [0x30, 0x39];
const WORD: Ranges = [0x30, 0x39, 0x41, 0x5a, 0x5f, 0x5f, 0x61, 0x7a];
const SPACE: Ranges = [
  ...[0x09, 0x0d, 0x20, 0x20, 0xa0, 0xa0, 0x1680, 0x1680, 0x2000, 0x200a],
  ...[0x2028, 0x2029, 0x202f, 0x202f, 0x205f, 0x205f, 0x3000, 0x3000, 0xfeff, 0xfeff],
];
const LINE_END: Ranges = [0x0a, 0x0a, 0x0d, 0x0d, 0x2028, 0x2029];
const CLASS_ESCAPES: Readonly<Record<string, Ranges>> = {
  d: DIGIT,
  w: WORD,
  s: SPACE,
  D: inverted(DIGIT),
  W: inverted(WORD),
  S: inverted(SPACE),
};
const CHARACTER_ESCAPES: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, '0': 0 };
const SYNTAX_CHARACTERS = '^$\\.*+?()[]{}|/';

/** Everything but these. */
function inverted(ranges: Ranges): Ranges {
  const result: number[] = [];
  let from = 0;
  for (let at = 0; at < ranges.length; at += 2) {
    const [low = 0, high = 0] = [ranges[at], ranges[at + 1]];
    if (low > from) result.push(from, low - 1);
    from = high + 1;
  }
  if (from <= CODE_POINT_MAX) result.push(from, CODE_POINT_MAX);
  return result;
}

/** In order, and joined where they touch. */
function normalized(ranges: Ranges): Ranges {
  const pairs: [number, number][] = [];
  for (let at = 0; at < ranges.length; at += 2) pairs.push([ranges[at] ?? 0, ranges[at + 1] ?? 0]);
  pairs.sort(([a], [b]) => a - b);
  const result: number[] = [];
  for (const [low, high] of pairs) {
    const end = result.at(-1);
    if (end !== undefined && low <= end + 1) result[result.length - 1] = Math.max(end, high);
    else result.push(low, high);
  }
  return result;
}

function includes(ranges: Ranges, codePoint: number): boolean {
  for (let at = 0; at < ranges.length; at += 2) {
    if (codePoint >= (ranges[at] ?? 0) && codePoint <= (ranges[at + 1] ?? 0)) return true;
  }
  return false;
}

class PatternParser {
  readonly #characters: readonly string[];
  #at = 0;
  #depth = 0;

  constructor(pattern: string) {
    // By code points, as the text is read.
    this.#characters = Array.from(pattern);
  }

  parse(): Syntax {
    const syntax = this.#either();
    if (this.#at < this.#characters.length) throw new PatternError('has a ) without a (');
    return syntax;
  }

  #peek(): string | undefined {
    return this.#characters[this.#at];
  }

  #take(text: string): boolean {
    for (let index = 0; index < text.length; index++) {
      if (this.#characters[this.#at + index] !== text[index]) return false;
    }
    this.#at += text.length;
    return true;
  }

  #either(): Syntax {
    const parts = [this.#sequence()];
    while (this.#take('|')) parts.push(this.#sequence());
    return parts.length === 1 ? (parts[0] as Syntax) : { kind: 'either', parts };
  }

  #sequence(): Syntax {
    const parts: Syntax[] = [];
    for (let next = this.#peek(); next !== undefined && next !== '|' && next !== ')'; next = this.#peek()) {
      parts.push(this.#repeated(this.#atom()));
    }
    return { kind: 'sequence', parts };
  }

  #repeated(part: Syntax): Syntax {
    const bounds = this.#quantifier();
    if (bounds === null) return part;
    if (part.kind === 'start' || part.kind === 'end') throw new PatternError('repeats an anchor');
    this.#take('?');
    if ('*+?{'.includes(this.#peek() ?? ' ')) throw new PatternError('has two quantifiers in a row');
    return { kind: 'repeat', part, ...bounds };
  }

  #quantifier(): { min: number; max: number } | null {
    if (this.#take('*')) return { min: 0, max: Infinity };
    if (this.#take('+')) return { min: 1, max: Infinity };
    if (this.#take('?')) return { min: 0, max: 1 };
    if (!this.#take('{')) return null;
    const min = this.#integer();
    const max = this.#take(',') ? (this.#peek() === '}' ? Infinity : this.#integer()) : min;
    if (!this.#take('}'))
      throw new PatternError('has a { that is not a count such as {2,5}; write \\{ for the character');
    if (max < min) throw new PatternError('has a count whose end comes before its start');
    return { min, max };
  }

  #integer(): number {
    let digits = '';
    for (let next = this.#peek(); next !== undefined && next >= '0' && next <= '9'; next = this.#peek()) {
      digits += next;
      this.#at++;
    }
    if (digits === '') throw new PatternError('has a { that is not a count such as {2,5}; write \\{ for the character');
    return Number(digits);
  }

  #atom(): Syntax {
    const character = this.#characters[this.#at++] as string;
    if (character === '(') return this.#group();
    if (character === '[') return { kind: 'set', ranges: this.#characterClass() };
    if (character === '.') return { kind: 'set', ranges: inverted(LINE_END) };
    if (character === '^') return { kind: 'start' };
    if (character === '$') return { kind: 'end' };
    if (character === '\\') return { kind: 'set', ranges: this.#escape(false) };
    if ('*+?{'.includes(character)) throw new PatternError(`has a ${character} with nothing before it to repeat`);
    if (character === '}' || character === ']') throw new PatternError(`has a lone ${character}; write \\${character}`);
    return single(character.codePointAt(0) as number);
  }

  #group(): Syntax {
    if (this.#take('?') && !this.#take(':')) {
      throw new PatternError('uses (?…): look-ahead, look-behind and named groups are not supported, use ( ) or (?: )');
    }
    if (++this.#depth > PATTERN_LIMITS.groupDepthMax) {
      throw new PatternError(`has more than ${PATTERN_LIMITS.groupDepthMax} groups inside one another`);
    }
    const syntax = this.#either();
    this.#depth--;
    if (!this.#take(')')) throw new PatternError('has a ( without a )');
    return syntax;
  }

  /** After the backslash. */
  #escape(isInClass: boolean): Ranges {
    const character = this.#characters[this.#at++];
    if (character === undefined) throw new PatternError('ends with a backslash');
    const ranges = Object.hasOwn(CLASS_ESCAPES, character) ? CLASS_ESCAPES[character] : undefined;
    if (ranges !== undefined) return ranges;
    if (character === '0' && /[0-9]/.test(this.#peek() ?? '')) throw new PatternError('has an octal escape');
    const control = Object.hasOwn(CHARACTER_ESCAPES, character) ? CHARACTER_ESCAPES[character] : undefined;
    if (control !== undefined) return [control, control];
    if (character === 'x') return this.#hexadecimal(2);
    if (character === 'u') return this.#unicodeEscape();
    if (SYNTAX_CHARACTERS.includes(character) || (isInClass && character === '-')) {
      const codePoint = character.codePointAt(0) as number;
      return [codePoint, codePoint];
    }
    throw new PatternError(`uses \\${character}, which is not supported`);
  }

  #unicodeEscape(): Ranges {
    if (!this.#take('{')) {
      const [high = 0] = this.#hexadecimal(4);
      // A pair of surrogates is one character, as it is in the text.
      if (high < 0xd800 || high > 0xdbff || !this.#take('\\u')) return [high, high];
      const [low = 0] = this.#hexadecimal(4);
      if (low < 0xdc00 || low > 0xdfff) throw new PatternError('has half a surrogate pair');
      const codePoint = (high - 0xd800) * 0x400 + (low - 0xdc00) + 0x10000;
      return [codePoint, codePoint];
    }
    const end = this.#characters.indexOf('}', this.#at);
    const digits = this.#characters.slice(this.#at, end).join('');
    if (end < 0 || !/^[0-9a-fA-F]{1,6}$/.test(digits) || Number.parseInt(digits, 16) > CODE_POINT_MAX) {
      throw new PatternError('has a \\u{…} that is no code point');
    }
    this.#at = end + 1;
    const codePoint = Number.parseInt(digits, 16);
    return [codePoint, codePoint];
  }

  #hexadecimal(length: number): Ranges {
    const digits = this.#characters.slice(this.#at, this.#at + length).join('');
    if (digits.length !== length || !/^[0-9a-fA-F]+$/.test(digits)) {
      throw new PatternError(`has a \\${length === 2 ? 'x' : 'u'} without ${length} hexadecimal digits`);
    }
    this.#at += length;
    const codePoint = Number.parseInt(digits, 16);
    return [codePoint, codePoint];
  }

  /** After the opening bracket. */
  #characterClass(): Ranges {
    const isNegated = this.#take('^');
    const ranges: number[] = [];
    while (!this.#take(']')) {
      const low = this.#classMember();
      if (this.#peek() === '-' && this.#characters[this.#at + 1] !== ']') {
        this.#at++;
        const high = this.#classMember();
        if (low.length !== 2 || high.length !== 2 || low[0] !== low[1] || high[0] !== high[1]) {
          throw new PatternError('has a range in [ ] whose ends are not single characters');
        }
        if ((high[0] ?? 0) < (low[0] ?? 0)) throw new PatternError('has a range in [ ] that ends before it starts');
        ranges.push(low[0] ?? 0, high[0] ?? 0);
      } else {
        ranges.push(...low);
      }
    }
    return isNegated ? inverted(normalized(ranges)) : normalized(ranges);
  }

  #classMember(): Ranges {
    const character = this.#characters[this.#at++];
    if (character === undefined) throw new PatternError('has a [ without a ]');
    if (character === '\\') return this.#escape(true);
    const codePoint = character.codePointAt(0) as number;
    return [codePoint, codePoint];
  }
}

function single(codePoint: number): Syntax {
  return { kind: 'set', ranges: [codePoint, codePoint] };
}

/** Builds the automaton from its end: each piece is given the states that follow it. */
class Automaton {
  readonly states: State[] = [];

  add(ranges: Ranges | null, anchor: State['anchor'], next: number[]): number {
    if (this.states.length >= PATTERN_LIMITS.statesMax) {
      throw new PatternError(
        `is too large: counts such as {1,200} are written out, to at most ${PATTERN_LIMITS.statesMax}`,
      );
    }
    this.states.push({ ranges, anchor, next });
    return this.states.length - 1;
  }

  /** The state in which this piece starts, if `next` is where it goes on. */
  build(syntax: Syntax, next: number): number {
    switch (syntax.kind) {
      case 'set':
        return this.add(syntax.ranges, null, [next]);
      case 'start':
      case 'end':
        return this.add(null, syntax.kind, [next]);
      case 'sequence':
        return syntax.parts.reduceRight((following, part) => this.build(part, following), next);
      case 'either':
        return this.add(
          null,
          null,
          syntax.parts.map((part) => this.build(part, next)),
        );
      case 'repeat':
      default:
        return this.#repeat(syntax.part, syntax.min, syntax.max, next);
    }
  }

  #repeat(part: Syntax, min: number, max: number, next: number): number {
    let start = next;
    if (max === Infinity) {
      start = this.add(null, null, [next]);
      const body = this.build(part, start);
      (this.states[start] as State).next = [body, next];
    } else {
      for (let count = min; count < max; count++) start = this.add(null, null, [this.build(part, start), next]);
    }
    for (let count = 0; count < min; count++) start = this.build(part, start);
    return start;
  }
}

/** The accepting state is the first one. */
const ACCEPT = 0;

function compile(source: string): { readonly states: readonly State[]; readonly start: number } {
  if (source.length > PATTERN_LIMITS.charactersMax) {
    throw new PatternError(`is longer than ${PATTERN_LIMITS.charactersMax} characters`);
  }
  const syntax = new PatternParser(source).parse();
  const automaton = new Automaton();
  automaton.add(null, null, []);
  const start = automaton.build(syntax, ACCEPT);
  return { states: automaton.states, start };
}

export class LinearPattern {
  readonly #source: string;
  readonly #states: readonly State[];
  readonly #first: StateSet;
  readonly #start: number;
  #sets = new Map<string, StateSet>();

  /** Throws a PatternError. */
  constructor(source: string) {
    this.#source = source;
    const { states, start } = compile(source);
    this.#states = states;
    this.#start = start;
    this.#first = this.#setOf([this.#start], true);
  }

  /** As a regular expression has it: ajv takes two patterns with the same text for one. */
  toString(): string {
    return `/${this.#source}/u`;
  }

  test(text: string): boolean {
    let current = this.#first;
    for (let at = 0; at < text.length; at++) {
      if (current.isMatch) return true;
      const codePoint = text.codePointAt(at) as number;
      if (codePoint > 0xffff) at++;
      current = current.next.get(codePoint) ?? this.#step(current, codePoint);
    }
    return current.isMatchAtEnd;
  }

  #step(current: StateSet, codePoint: number): StateSet {
    const reached: number[] = [];
    for (const number of current.states) {
      const { ranges, next } = this.#states[number] as State;
      if (ranges !== null && includes(ranges, codePoint)) reached.push(...next);
    }
    // A match may start at every character.
    reached.push(this.#start);
    const result = this.#setOf(reached, false);
    // A few hundred characters cover ordinary texts; hostile ones must not fill the memory.
    if (current.next.size < PATTERN_LIMITS.rememberedCharactersMax) current.next.set(codePoint, result);
    return result;
  }

  #setOf(from: readonly number[], isAtStart: boolean): StateSet {
    const states = this.#closure(from, isAtStart, false);
    const key = states.join();
    const remembered = isAtStart ? undefined : this.#sets.get(key);
    if (remembered !== undefined) return remembered;
    const result: StateSet = {
      states: states.filter((number) => number === ACCEPT || this.#states[number]?.ranges !== null),
      isMatch: states.includes(ACCEPT),
      isMatchAtEnd: this.#closure(from, isAtStart, true).includes(ACCEPT),
      next: new Map(),
    };
    if (isAtStart) return result;
    if (this.#sets.size >= PATTERN_LIMITS.rememberedSetsMax) this.#forget();
    this.#sets.set(key, result);
    return result;
  }

  #forget(): void {
    for (const { next } of this.#sets.values()) next.clear();
    this.#first.next.clear();
    this.#sets.clear();
  }

  /** All states that these lead to without a character, in ascending order. */
  #closure(from: readonly number[], isAtStart: boolean, isAtEnd: boolean): number[] {
    const seen = new Set<number>();
    const open = [...from];
    for (let number = open.pop(); number !== undefined; number = open.pop()) {
      if (seen.has(number)) continue;
      seen.add(number);
      const { ranges, anchor, next } = this.#states[number] as State;
      if (ranges !== null || (anchor === 'start' && !isAtStart) || (anchor === 'end' && !isAtEnd)) continue;
      open.push(...next);
    }
    return [...seen].toSorted((a, b) => a - b);
  }
}

/** Why a pattern cannot be used; null if it can. */
export function problemOfPattern(source: string): string | null {
  try {
    compile(source);
    return null;
  } catch (error) {
    if (!(error instanceof PatternError)) throw error;
    return error.message;
  }
}
