/**
 * How many files this process may open, and how many connections that leaves. A connection is an open file to the
 * operating system, and so is every log segment, every thread's event loop and every database connection: clients must
 * never use up what the server needs to work. Node raises the soft limit to the hard one when it starts, so the limit
 * that Linux reports applies; on other systems the limit is not read and a fixed number is used.
 */

import { readFileSync } from 'node:fs';
import type { Config } from '../config/config.ts';
import { OperatorError } from '../errors.ts';
import { SETTINGS } from '../config/settings.ts';

/** An embedded server with one edge has about 76 files open when idle, up to 110 while it starts. */
const FILES_OF_SERVER = 80;
/** Its threads, and the log segments being written and read: about 25 when idle. */
const FILES_PER_EDGE = 48;
/** Connections to brokers, one per broker and thread. */
const FILES_FOR_KAFKA = 64;
/** Connections to PostgreSQL besides the pools of the edges and the processor. */
const FILES_FOR_STORE = 16;
/** With fewer, a handful of clients would keep all others out. */
const CONNECTIONS_MIN = 16;
/**
 * Beyond this, memory is the limit rather than files: an idle connection costs about 20 kB. Operators can set a higher
 * number.
 */
const CONNECTIONS_DEFAULT_MAX = 10_000;
/** Where the open-file limit is not known. */
const CONNECTIONS_IF_UNKNOWN = 1_000;

const LIMITS_FILE = '/proc/self/limits';

/** Too many in this process, or in the whole system. Some are closed sooner or later, so retrying is worthwhile. */
export function isTooManyOpenFiles(error: unknown): error is Error {
  return error instanceof Error && 'code' in error && (error.code === 'EMFILE' || error.code === 'ENFILE');
}

/** Null where the system does not say. */
export function openFilesMax(): number | null {
  try {
    const soft = /^Max open files\s+(\S+)/m.exec(readFileSync(LIMITS_FILE, 'utf8'))?.[1];
    if (soft === 'unlimited') return Number.MAX_SAFE_INTEGER;
    return soft === undefined ? null : Number(soft);
  } catch {
    return null;
  }
}

/** The connections that this server accepts at once, over all edges. Throws `OperatorError` if the limit leaves too few. */
export function connectionsMaxOf(config: Config, filesMax: number | null): number {
  const { connectionsMax } = config;
  if (filesMax === null) return connectionsMax || CONNECTIONS_IF_UNKNOWN;
  const reserve = filesOfServer(config);
  const room = filesMax - reserve;
  const wanted = connectionsMax || CONNECTIONS_MIN;
  if (room < wanted) {
    const { env } = SETTINGS.connectionsMax;
    const least = `this server needs ${reserve} for itself and ${wanted} for connections`;
    const orLess =
      connectionsMax > CONNECTIONS_MIN && room >= CONNECTIONS_MIN ? `, or set ${env} to at most ${room}` : '';
    throw new OperatorError(
      `This process may open ${filesMax} files, but ${least}. Allow at least ${reserve + wanted} ` +
        `(ulimit -n in a shell, LimitNOFILE= in systemd, ulimits: nofile: in a compose file)${orLess}.`,
    );
  }
  return connectionsMax || Math.min(room, CONNECTIONS_DEFAULT_MAX);
}

/** What the server itself may have open, with room to spare. */
function filesOfServer({ role, edges, storeUrl, logUrl, storeConnections }: Config): number {
  const threads = role === 'processor' ? 1 : edges;
  let files = FILES_OF_SERVER + FILES_PER_EDGE * threads;
  // A pool for each edge, and one for the processor.
  if (storeUrl !== '') files += FILES_FOR_STORE + storeConnections * (threads + 1);
  if (logUrl !== '') files += FILES_FOR_KAFKA;
  return files;
}
