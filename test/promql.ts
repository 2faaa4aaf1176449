/**
 * Finds out which metrics and labels an expression of Prometheus names. A tokenizer and a little knowledge of the
 * language: what stands before a parenthesis is a function, what is in the parentheses of `by` and the like are labels,
 * what is in braces are matchers, everything else that looks like a name is a metric. Throws at unbalanced parentheses
 * and at characters that the language does not have.
 */

import assert from 'node:assert/strict';

export interface Selector {
  readonly metric: string;
  readonly matchers: readonly { readonly label: string; readonly operator: string; readonly value: string }[];
}

export interface Query {
  readonly selectors: readonly Selector[];
  readonly functions: readonly string[];
  /** Of `by`, `without`, `on`, `ignoring`, `group_left` and `group_right`. */
  readonly groupLabels: readonly string[];
}

const TOKEN =
  /\s*(?:([a-zA-Z_:][a-zA-Z0-9_:]*)|("(?:[^"\\]|\\.)*")|(\[[^\]]+\])|(\d[\d.]*(?:e[+-]?\d+)?[a-z]*)|(==|!=|<=|>=|=~|!~|[-+*/%^<>=(){},]))/y;
const GROUPING = new Set(['by', 'without', 'on', 'ignoring', 'group_left', 'group_right']);
const OPERATORS = new Set(['and', 'or', 'unless', 'bool', 'offset']);

export function parseQuery(text: string): Query {
  const tokens = tokensOf(text);
  const selectors: Selector[] = [];
  const functions: string[] = [];
  const groupLabels: string[] = [];
  let depth = 0;
  for (let at = 0; at < tokens.length; at++) {
    const token = tokens[at] ?? '';
    if (token === '(') depth += 1;
    if (token === ')') depth -= 1;
    assert.ok(depth >= 0, `too many ) in ${text}`);
    if (!/^[a-zA-Z_:]/.test(token) || OPERATORS.has(token)) continue;
    if (GROUPING.has(token)) {
      const end = tokens.indexOf(')', at);
      assert.equal(tokens[at + 1], '(', `${token} without labels in ${text}`);
      groupLabels.push(...tokens.slice(at + 2, end).filter((one) => one !== ','));
      at = end;
    } else if (tokens[at + 1] === '(' || GROUPING.has(tokens[at + 1] ?? '')) {
      functions.push(token);
    } else {
      const matchers = tokens[at + 1] === '{' ? matchersOf(tokens, at + 2, text) : [];
      if (tokens[at + 1] === '{') at = tokens.indexOf('}', at);
      selectors.push({ metric: token, matchers });
    }
  }
  assert.equal(depth, 0, `not enough ) in ${text}`);
  return { selectors, functions, groupLabels };
}

function tokensOf(text: string): string[] {
  const tokens: string[] = [];
  TOKEN.lastIndex = 0;
  const trimmed = text.trim();
  while (TOKEN.lastIndex < trimmed.length) {
    const from = TOKEN.lastIndex;
    const match = TOKEN.exec(trimmed);
    assert.ok(match, `not understood: ${trimmed.slice(from)}`);
    tokens.push(match[0].trim());
  }
  return tokens;
}

function matchersOf(tokens: readonly string[], from: number, text: string): Selector['matchers'] {
  const end = tokens.indexOf('}', from);
  assert.ok(end > 0, `no } in ${text}`);
  const matchers = [];
  for (let at = from; at < end; at += 4) {
    const [label = '', operator = '', value = ''] = tokens.slice(at, at + 3);
    assert.match(`${label}${operator}${value}`, /^\w+(=|!=|=~|!~)".*"$/, text);
    matchers.push({ label, operator, value: JSON.parse(value) as string });
  }
  return matchers;
}
