/**
 * A data folder with everything real in it (keys, log, store), filled through the log and the processor, and a shell
 * that runs commands on it in this process and keeps what they wrote.
 */

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import type { Shell } from '../../src/cli/shell.ts';
import { keyFileOf, logFolderOf, storeFileOf } from '../../src/data-folder/files.ts';
import { OperatorError } from '../../src/errors.ts';
import { newAccount } from '../../src/keys/manage.ts';
import type { LogEntry } from '../../src/log.ts';
import { type Environment, tenantOf, tenantPartsOf } from '../../src/model.ts';
import * as stores from '../../src/wiring/opening.ts';
import type { Store } from '../../src/store.ts';
import { entry } from '../contract/log-entries.ts';
import { appendAll, processAll, withStore } from '../processor/processing.ts';
import { removeFolder, temporaryFolder } from '../server.ts';

export const NOW = Date.UTC(2026, 10, 15, 12, 0, 0);

export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

export interface DataFolder {
  readonly data: string;
  /** Appends requests to the log of an account's tenant; all are durable afterwards, none is processed. */
  readonly append: (entries: readonly NewEntry[]) => Promise<void>;
  /** Processes what is in the log. */
  readonly process: () => Promise<void>;
  /** Both. */
  readonly send: (entries: readonly NewEntry[]) => Promise<void>;
  readonly shell: (changes?: Partial<Shell>) => TestShell;
  readonly withStore: <T>(work: (store: Store) => Promise<T>) => Promise<T>;
  readonly tenantId: (account?: string, environment?: Environment) => Promise<string>;
}

export interface NewEntry extends Partial<LogEntry> {
  readonly users?: unknown[];
  readonly account?: string;
  readonly environment?: Environment;
}

export interface TestShell {
  readonly shell: Shell;
  readonly stopping: AbortController;
  readonly out: () => string;
  readonly err: () => string;
}

export type Command = (args: readonly string[], shell: Shell) => Promise<number>;

/** A UUID that tells which one it is. */
export function traceId(n: number): string {
  return `01930000-0000-7000-8000-${String(n).padStart(12, '0')}`;
}

export function openDataFolder(context: TestContext): DataFolder {
  const data = temporaryFolder();
  context.after(() => removeFolder(data));
  mkdirSync(logFolderOf(data), { recursive: true, mode: 0o700 });

  const tenantId = async (account = 'default', environment: Environment = 'development'): Promise<string> => {
    const keyStore = openSqliteKeyStore(keyFileOf(data));
    const { id } = await keyStore.ensureAccount(newAccount(account, NOW));
    await keyStore.close();
    return tenantOf(id, environment);
  };
  let nextTrace = 1;
  const append = async (entries: readonly NewEntry[]): Promise<void> => {
    const tenantIds = new Map<string, string>();
    const made: LogEntry[] = [];
    for (const { account, environment, ...rest } of entries) {
      const tenant = `${account} ${environment}`;
      if (!tenantIds.has(tenant)) tenantIds.set(tenant, await tenantId(account, environment));
      const n = nextTrace++;
      const about = { traceId: traceId(n), receivedAt: NOW - 3_600_000 + n, tenantId: tenantIds.get(tenant) ?? '' };
      made.push(entry({ ...about, ...rest }));
    }
    await appendAll(data, made);
  };
  const process = (): Promise<void> => processAll(data, { now: () => NOW });
  return {
    data,
    append,
    process,
    send: async (entries) => {
      await append(entries);
      await process();
    },
    shell: (changes) => testShell({ env: { SLUICE_DATA: data }, ...changes }),
    withStore: (work) => withStore(storeFileOf(data), work),
    tenantId,
  };
}

export function testShell(changes: Partial<Shell>): TestShell {
  let [out, err] = ['', ''];
  const stopping = new AbortController();
  const shell: Shell = {
    out: (text) => {
      out += text;
    },
    drained: async () => undefined,
    err: (text) => {
      err += text;
    },
    outTerminal: { isTty: false, columns: 120 },
    errTerminal: { isTty: false, columns: 120 },
    stdin: (async function* () {})(),
    env: {},
    now: () => NOW,
    stop: stopping.signal,
    ...stores,
    ...changes,
  };
  return { shell, stopping, out: () => out, err: () => err };
}

export async function run(command: Command, args: readonly string[], { shell, out, err }: TestShell): Promise<Ran> {
  const code = await command(args, shell);
  return { code, out: out(), err: err() };
}

/** The words of a refusal. */
export async function refusal(command: Command, args: readonly string[], { shell }: TestShell): Promise<string> {
  const error: unknown = await command(args, shell).then(
    () => new Error('it was not refused'),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof OperatorError, String(error));
  return error.message;
}

export function fileIn(folder: string, name: string): string {
  return join(folder, name);
}

/** The first plan of its tenant. */
export async function pushPlan(folder: DataFolder, plan: object): Promise<void> {
  const keyStore = openSqliteKeyStore(keyFileOf(folder.data));
  await keyStore.plans.push(tenantPartsOf(await folder.tenantId()), {
    text: JSON.stringify(plan),
    createdAt: NOW,
    createdBy: 'key_1',
    enforces: false,
    warns: true,
    basedOn: null,
  });
  await keyStore.close();
}
