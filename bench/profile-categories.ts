/**
 * Which kind of work a function of a CPU profile is. Native functions have no file: those that are known by name are
 * put where they belong, the others where their caller is. What is neither JavaScript nor called from it (the HTTP
 * parser, reads from sockets, libuv) is all one thing to the profiler.
 */

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export interface CallFrame {
  readonly functionName: string;
  readonly url: string;
  /** Counted from zero; -1 for native functions. */
  readonly lineNumber: number;
}

const ENGINE: ReadonlyMap<string, string> = new Map([
  ['(garbage collector)', 'garbage collection'],
  ['(program)', 'native: HTTP parser, socket reads, waiting for a core'],
  ['(root)', 'other'],
]);

const NATIVE: readonly (readonly [RegExp, string])[] = [
  [/^(writeBuffer|writev|write\w+String|shutdown|readStart|readStop)$/, 'socket writes'],
  [/^(postMessage|receiveMessageOnPort|drain|structuredClone)$/, 'messages between threads'],
  [
    /^(utf8Slice|latin1Slice|asciiSlice|isUtf8|copy|set|byteLengthUtf8|utf8Write\w*|slice)$/,
    'copying and decoding bytes',
  ],
  [/^(crc32|hash|oneShotDigest|digest|randomFillSync|getRandomValues|secureBuffer)$/, 'hashes and random bytes'],
];

const FILES: readonly (readonly [RegExp, string])[] = [
  [/^node:(_http|internal\/http|_http_)/, 'node:http'],
  [/^node:(net|internal\/stream_base)/, 'socket writes'],
  [/^node:(events|stream|internal\/streams|internal\/event)/, 'streams and events'],
  [/^node:internal\/(process|timers|async_|promise)|^node:timers/, 'timers, ticks and promises'],
  [/^node:internal\/(worker|per_context\/messageport)/, 'messages between threads'],
  [/^node:(buffer|internal\/buffer|internal\/encoding)/, 'copying and decoding bytes'],
  [/^node:(crypto|internal\/crypto|zlib)/, 'hashes and random bytes'],
  [/^node:(internal\/(modules|bootstrap|main|deps|util|errors|url|fs|source_map)|fs|path|url|module)/, 'starting'],
  [/^node:sqlite/, 'SQLite: insert, commit, sync'],
  [/\/node_modules\//, 'starting'],
  [/\/src\/validation\//, 'validation'],
  [/\/src\/keys\//, 'keys'],
  [/\/src\/backends\/sqlite\/keys/, 'keys'],
  [/\/src\/backends\/sqlite\/(log\/writer|log\/segments|disk)/, 'log writer'],
  [/\/src\/backends\/sqlite\/log\/(reader|segment-reader)/, 'reading the log'],
  [/\/src\/identity\/(match-keys|phone-number)/, 'match keys'],
  [/\/src\/identity\//, 'resolving identities'],
  [/\/src\/processor\/prepare/, 'preparing users and events'],
  [/\/src\/processor\//, 'processor'],
  [/\/src\/columnar\//, 'store: sorted runs'],
  [/\/src\/views\/keyed-hash/, 'hashes and random bytes'],
  [/\/src\/views\//, 'views: counts, caches, property updates'],
  [/\/src\/json\/utf8/, 'copying and decoding bytes'],
  [/\/src\/json\//, 'JSON.parse'],
  [/\/src\/backends\/sqlite\//, 'log: handing over'],
  [/\/src\/edge\/trace-id/, 'trace ids'],
  [/\/src\/telemetry\//, 'metrics and logs'],
  [/\/src\/edge\//, 'edge'],
];

/**
 * By file and function of the store: what it is doing there, mostly inside SQLite. The engine often counts native calls
 * as time of the function that makes them, so the two are not distinguished.
 */
const STORE: readonly (readonly [RegExp, RegExp, string])[] = [
  [/\/store\/identity-graph/, /^writeChanges$/, 'store: identifiers, merges, aliases'],
  [/\/store\/(identity-graph|match-keys|first-uses|invalidations)/, /./, 'store: looking keys, ids and profiles up'],
  [/\/store\/profile-runs/, /./, 'store: nodes'],
  [/\/store\/writer/, /^addCounts$/, 'store: counts'],
  [/\/(store\/event-|uuids)/, /./, 'store: events and records'],
  [/\/store\/writer/, /writeRecord/, 'store: events and records'],
  [/\/sorted-runs\//, /./, 'store: sorted runs'],
  [/\/store\/writer/, /commit|begin|Durable|anonymous/, 'store: commit, checkpoint, sync'],
  [/\/store\//, /./, 'store: other'],
];

const SQLITE_CALLS = /^(run|exec|get|all|iterate|prepare|StatementSync|DatabaseSync|open|close)$/;

const sources = new Map<string, readonly string[]>();

/** `line` counts from one, as the profiler's ticks do; null when it is not known. */
export function categoryOf(frame: CallFrame, callers: readonly CallFrame[], line: number | null): string {
  const engine = ENGINE.get(frame.functionName);
  if (engine !== undefined) return engine;
  if (frame.url === '') return categoryOfNative(frame, callers);
  if (line !== null && frame.url.startsWith('file:') && /\bJSON\.parse\(/.test(sourceLine(frame.url, line))) {
    return 'JSON.parse';
  }
  return storeCategory(frame) ?? FILES.find(([pattern]) => pattern.test(frame.url))?.[1] ?? 'other';
}

function storeCategory({ url, functionName }: CallFrame): string | undefined {
  if (!url.includes('/src/backends/embedded/')) return undefined;
  return STORE.find(([file, name]) => file.test(url) && name.test(functionName || 'anonymous'))?.[2];
}

export function nameOf(frame: CallFrame): string {
  const name = frame.functionName === '' ? '(anonymous)' : frame.functionName;
  if (frame.url === '') return name;
  const file = frame.url.replace(/^.*\/(src|node_modules)\//, '$1/');
  return `${name} ${file}:${frame.lineNumber + 1}`;
}

function categoryOfNative(frame: CallFrame, callers: readonly CallFrame[]): string {
  const known = NATIVE.find(([pattern]) => pattern.test(frame.functionName))?.[1];
  if (known !== undefined) return known;
  const caller = callers.find(({ url }) => url !== '');
  const inBackend = caller?.url.includes('/src/backends/embedded/') === true;
  if (caller !== undefined && inBackend && SQLITE_CALLS.test(frame.functionName)) {
    return storeCategory(caller) ?? 'SQLite: insert, commit, sync';
  }
  return FILES.find(([pattern]) => pattern.test(caller?.url ?? ''))?.[1] ?? 'other';
}

function sourceLine(url: string, line: number): string {
  let lines = sources.get(url);
  if (lines === undefined) {
    try {
      lines = readFileSync(fileURLToPath(url), 'utf8').split('\n');
    } catch {
      lines = [];
    }
    sources.set(url, lines);
  }
  return lines[line - 1] ?? '';
}
