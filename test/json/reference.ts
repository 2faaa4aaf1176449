/**
 * A JSON parser for tests, by the book: `JSON.parse` of Node 26 misreads property names that are written with an escape.
 * For texts that are JSON; recursive.
 */

const TOKEN = /[ \t\r\n]*(?:([{}[\],:])|("(?:[^"\\]|\\.)*")|([^ \t\r\n{}[\],:"]+))/y;

export function referenceValue(text: string): unknown {
  const tokens: string[] = [];
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(text); match !== null; match = TOKEN.exec(text)) {
    tokens.push(match[1] ?? match[2] ?? match[3] ?? '');
  }
  let next = 0;
  const value = (): unknown => {
    const token = tokens[next++] ?? '';
    if (token === '{') return Object.fromEntries(members('}'));
    return token === '[' ? elements() : JSON.parse(token);
  };
  const elements = (): unknown[] => {
    const found: unknown[] = [];
    while (!ends(']')) found.push(value());
    return found;
  };
  const members = (close: string): [string, unknown][] => {
    const found: [string, unknown][] = [];
    while (!ends(close)) {
      const name = JSON.parse(tokens[next] ?? '') as string;
      next += 2;
      found.push([name, value()]);
    }
    return found;
  };
  const ends = (close: string): boolean => {
    if (tokens[next] === ',') next++;
    if (tokens[next] !== close) return false;
    next++;
    return true;
  };
  return value();
}
