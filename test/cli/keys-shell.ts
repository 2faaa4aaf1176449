/**
 * Runs `sluice keys` in this process, on a real key file in a folder of its own, with a clock that tests set.
 */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { runKeys } from '../../src/cli/keys.ts';
import { localTime } from '../../src/cli/local-time.ts';
import type { Env } from '../../src/config/config.ts';
import { OperatorError } from '../../src/errors.ts';
import { KEY_PATTERN } from '../../src/keys/format.ts';
import type { KeyStore } from '../../src/keys.ts';
import { temporaryFolder } from '../keys/temporary-store.ts';
import { testShell } from './data-shell.ts';

export const NOW = Date.UTC(2026, 10, 15, 12, 34, 56);
export const SECRET = ['create', '--name', 'shop backend', '--kind', 'secret', '--env', 'production'];
export const PUBLISHABLE = ['create', '--name', 'web page', '--kind', 'publishable', '--env', 'development'];

export interface Shell {
  readonly data: string;
  /** Runs `sluice keys` and gives what it printed. */
  readonly run: (args: readonly string[], env?: Env) => Promise<string>;
  /** Runs it and gives the words of its refusal. */
  readonly refusal: (args: readonly string[], env?: Env) => Promise<string>;
  readonly withStore: <T>(work: (store: KeyStore) => Promise<T>) => Promise<T>;
  readonly setNow: (now: number) => void;
}

export async function openShell(context: TestContext): Promise<Shell> {
  const { folder, remove } = await temporaryFolder();
  context.after(remove);
  const data = join(folder, 'data');
  let now = NOW;
  const run = async (args: readonly string[], env: Env = {}): Promise<string> => {
    const { shell, out } = testShell({ env: { SLUICE_DATA: data, ...env }, now: () => now });
    assert.equal(await runKeys(args, shell), 0);
    return out();
  };
  const refusal = async (args: readonly string[], env: Env = {}): Promise<string> => {
    const error: unknown = await run(args, env).catch((reason: unknown) => reason);
    assert.ok(error instanceof OperatorError, String(error));
    return error.message;
  };
  const withStore = async <T>(work: (store: KeyStore) => Promise<T>): Promise<T> => {
    const store = openSqliteKeyStore(join(data, 'keys.db'));
    try {
      return await work(store);
    } finally {
      await store.close();
    }
  };
  const setNow = (value: number): void => {
    now = value;
  };
  return { data, run, refusal, withStore, setNow };
}

/** As it is printed. */
export function minuteOf(time: number): string {
  return localTime(time).slice(0, 16);
}

export function keyIn(output: string): string {
  const [key] = KEY_PATTERN.exec(output) ?? [];
  assert.ok(key !== undefined, output);
  return key;
}
