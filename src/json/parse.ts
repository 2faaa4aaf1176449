/**
 * `JSON.parse` for whatever clients sent, and for what is stored of it. The engine's own misreads property names that are
 * written with an escape: it compares the raw text of a name with names that it expects, so after `{"a":1,"\\n":1}` the
 * second name of `{"a":1,"\nb":1}` becomes a backslash and an n (https://github.com/nodejs/node/issues/63785). A text with
 * such a name is built from the scanner instead, which takes twice as long; few texts have one.
 *
 * Invariant: the result is what the specification of `JSON.parse` says, at any depth. Goes over a text in linear time.
 */

import { BACKSLASH, COLON, END, isWhiteSpace, JsonScanner, LOWER_F, LOWER_N, NO_KEYS, QUOTE } from './scanner.ts';

type Container = unknown[] | Record<string, unknown>;

export function parseJson(text: string): unknown {
  return hasEscapedName(text) ? buildValue(text, Number) : JSON.parse(text);
}

/**
 * Undefined for what is not JSON: the message of the error would quote what a client sent. For what Sluice wrote itself,
 * `JSON.parse` is good enough.
 */
export function jsonIn(text: string, parse: (text: string) => unknown = parseJson): unknown {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

/** For valid JSON; the result for anything else is unspecified. */
function hasEscapedName(text: string): boolean {
  const { length } = text;
  for (let at = text.indexOf('\\'); at >= 0; at = text.indexOf('\\', at)) {
    // Only strings hold a backslash. This one is a name if a colon follows it.
    for (let code = BACKSLASH; at < length && code !== QUOTE; code = text.charCodeAt(at)) {
      at += code === BACKSLASH ? 2 : 1;
    }
    do at++;
    while (isWhiteSpace(text.charCodeAt(at)));
    if (text.charCodeAt(at) === COLON) return true;
  }
  return false;
}

/** The value of a text, with what `numberOf` makes of the source of each number. Not recursive. */
export function buildValue(text: string, numberOf: (source: string) => unknown): unknown {
  const scanner = new JsonScanner(Buffer.from(text), text);
  /** The arrays and objects that have not ended yet, from the outermost. */
  const open: Container[] = [];
  const root = nextValue(scanner, numberOf, open);
  for (let container = open.at(-1); container !== undefined; container = open.at(-1)) {
    if (Array.isArray(container)) {
      if (scanner.nextElement()) container.push(nextValue(scanner, numberOf, open));
      else open.pop();
    } else if (scanner.nextKey(NO_KEYS) === END) {
      open.pop();
    } else {
      const name = scanner.stringText();
      setMember(container, name, nextValue(scanner, numberOf, open));
    }
  }
  if (scanner.finish()) return root;
  throw new SyntaxError(`${scanner.error?.problem} at offset ${scanner.error?.offset}`);
}

/** An array or object is added to the open ones, and is empty. */
function nextValue(scanner: JsonScanner, numberOf: (source: string) => unknown, open: Container[]): unknown {
  const container = scanner.openObject() ? {} : scanner.openArray() ? [] : null;
  if (container !== null) {
    open.push(container);
    return container;
  }
  if (scanner.string()) return scanner.stringText();
  const first = scanner.peek();
  const start = scanner.offset;
  if (scanner.number()) return numberOf(scanner.text.slice(start, scanner.offset));
  scanner.skipValue();
  return first === LOWER_N ? null : first !== LOWER_F;
}

/** If a name occurs twice, the last value counts, in the place of the first. */
function setMember(object: Record<string, unknown>, name: string, value: unknown): void {
  if (name !== '__proto__') object[name] = value;
  else Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
}
