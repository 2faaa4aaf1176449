/**
 * The environment of commands: output, clock, stop signal, and how to open the data folder or the database.
 * main.ts makes one from the process; tests make their own. Commands write through it alone, so that nothing of theirs
 * appears where it should not.
 */

import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import type { Config, Env } from '../config/config.ts';
import { OperatorError } from '../errors.ts';
import type { KeyStore } from '../keys.ts';
import { SQLITE, sqliteCodeOf } from '../runtime/sqlite-errors.ts';
import type { Store } from '../store.ts';
import { StoreUnavailableError } from '../store-writer.ts';
import { locationName } from './location.ts';

interface Terminal {
  readonly isTty: boolean;
  readonly columns: number;
}

/** How to open what a server has stored, wherever the settings say that it is. */
interface Stores {
  /** For reading, completed by what is still in the log. Makes nothing: undefined where there is no store yet. */
  readonly openStore: (config: Config) => Promise<Store | undefined>;
  /** Likewise. */
  readonly findKeyStore: (config: Config) => Promise<KeyStore | undefined>;
  /** Makes what is not there yet, but for keys that a data folder has lost. */
  readonly openKeyStore: (config: Config) => Promise<KeyStore>;
  /** Replaces those that a data folder has lost. */
  readonly replaceLostKeys: (config: Config, now: number) => Promise<KeyStore>;
  /** The address of the server that runs on the data folder; undefined when none does. */
  readonly findServer: (config: Config) => Promise<string | undefined>;
}

export interface Shell extends Stores {
  /** To stdout: what was asked for. */
  readonly out: (text: string) => void;
  /** Resolves once stdout can take more: for those who write a lot. */
  readonly drained: () => Promise<void>;
  /** To stderr: progress, and messages that are not part of the output. */
  readonly err: (text: string) => void;
  readonly outTerminal: Terminal;
  readonly errTerminal: Terminal;
  readonly stdin: AsyncIterable<Uint8Array>;
  readonly env: Env;
  readonly now: () => number;
  /** Aborted by Ctrl-C, SIGTERM, or when the reader of stdout is gone. */
  readonly stop: AbortSignal;
}

/** Opens the keys, and closes them. */
export async function withKeyStore<T>(
  config: Config,
  open: (config: Config) => Promise<KeyStore>,
  work: (store: KeyStore) => Promise<T>,
): Promise<T> {
  let store: KeyStore | undefined;
  try {
    store = await open(config);
    return await work(store);
  } catch (error) {
    if (!(error instanceof StoreUnavailableError)) throw error;
    const reason = error.cause instanceof Error ? error.cause.message : error.message;
    throw new OperatorError(`The keys in ${locationName(config)} cannot be reached: ${reason}`, { cause: error });
  } finally {
    // The work is committed, and a new key is shown only once: an error here must not hide it.
    await store?.close().catch(() => undefined);
  }
}

/** The same for keys that are there. Undefined where there are none yet. */
export async function onFoundKeys<T>(
  { findKeyStore }: Pick<Shell, 'findKeyStore'>,
  config: Config,
  work: (store: KeyStore) => Promise<T>,
): Promise<T | undefined> {
  const store = await findKeyStore(config);
  return store && withKeyStore(config, async () => store, work);
}

const COLUMNS_WITHOUT_TERMINAL = 120;

/**
 * Takes the signals over, unless the command has nothing to end in order: after the first one it ends in order, a second
 * one ends it at once.
 */
export function shellOf(env: Env, stores: Stores, endsInOrder = true): Shell {
  const { stdout, stderr, stdin } = process;
  const stopping = new AbortController();
  const stop = (): void => stopping.abort();
  if (endsInOrder) for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, stop);
  stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    stop();
  });
  return {
    ...stores,
    env,
    out: (text) => void stdout.write(text),
    drained: () => drained(stdout, stopping.signal),
    err: (text) => void stderr.write(text),
    outTerminal: terminalOf(stdout),
    errTerminal: terminalOf(stderr),
    stdin,
    now: Date.now,
    stop: stopping.signal,
  };
}

function terminalOf(stream: NodeJS.WriteStream): Terminal {
  return {
    isTty: stream.isTTY,
    get columns(): number {
      // Some terminals do not know their width and say 0.
      return stream.columns > 0 ? stream.columns : COLUMNS_WITHOUT_TERMINAL;
    },
  };
}

async function drained(stream: NodeJS.WriteStream, stop: AbortSignal): Promise<void> {
  if (stream.writableNeedDrain) await once(stream, 'drain', { signal: stop }).catch(() => undefined);
}

const FULL_DISK: ReadonlySet<unknown> = new Set(['ENOSPC', 'EDQUOT']);
const SQLITE_FILE_ERRORS: ReadonlySet<number> = new Set([SQLITE.readonly, SQLITE.ioerr, SQLITE.full, SQLITE.cantopen]);

/**
 * Turns file-system errors (disk full, not writable) into an `OperatorError`, without a stack; returns other errors as
 * they are. `folder` is where the command writes.
 */
export function asOperatorError(error: unknown, folder?: string): unknown {
  if (!(error instanceof Error && 'code' in error)) return error;
  const sqliteCode = sqliteCodeOf(error) ?? 0;
  if (!('syscall' in error) && !SQLITE_FILE_ERRORS.has(sqliteCode)) return error;
  if (FULL_DISK.has(error.code) || sqliteCode === SQLITE.full) {
    const disk = folder === undefined ? 'that this command writes to' : `of ${folder}`;
    const message = `The disk ${disk} is full. Free some space there, or use another disk; then run it again.`;
    return new OperatorError(message, { cause: error });
  }
  const advice = error.code === 'EACCES' ? '. Run it as a user who may use that, such as its owner.' : '';
  return new OperatorError(`Stopped by an error: ${error.message}${advice}`, { cause: error });
}

/** Resolves after the time, or at once when the command is to stop. */
export function pause(milliseconds: number, stop: AbortSignal): Promise<void> {
  return setTimeout(milliseconds, undefined, { signal: stop }).catch(() => undefined);
}
