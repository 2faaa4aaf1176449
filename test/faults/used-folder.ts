/** Data folders as a server leaves them, for the tests of the files of the log. Made once a process, and copied. */

import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { tieDataFolder } from '../../src/backends/embedded/installation.ts';
import { loadConfig } from '../../src/config/config.ts';
import type { LogEntry } from '../../src/log.ts';
import { prepareDataFolder } from '../../src/wiring/start-checks.ts';
import { entry } from '../contract/log-entries.ts';
import { appendAll, processAll } from '../processor/processing.ts';
import { folderIn, type Scope } from './scope.ts';

let made = 0;

export function entries(count: number, tenantId = 'acct_test/development'): LogEntry[] {
  return Array.from({ length: count }, () => {
    made += 1;
    return entry({ traceId: `0190a000-0000-7000-8000-${String(made).padStart(12, '0')}`, tenantId });
  });
}

const shared = new AsyncDisposableStack();
after(() => shared.disposeAsync());
const used = new Map<number, Promise<string>>();

/** A data folder of which everything is processed, as a server leaves it: a copy, since many tests have the same. */
export async function usedFolder(scope: Scope, requests: number): Promise<string> {
  const original = used.get(requests) ?? newlyUsedFolder(shared, requests);
  used.set(requests, original);
  const folder = join(folderIn(scope), 'data');
  cpSync(await original, folder, { recursive: true });
  return folder;
}

/** One that is no copy is another installation. */
export async function newlyUsedFolder(scope: Scope, requests: number): Promise<string> {
  const folder = join(folderIn(scope), 'data');
  tieDataFolder(folder);
  await receive(folder, requests);
  return folder;
}

export async function receive(folder: string, requests: number): Promise<void> {
  await appendAll(folder, entries(requests));
  await processAll(folder);
}

export async function prepare(folder: string): Promise<string[]> {
  return (await prepareDataFolder(loadConfig({ env: { SLUICE_DATA: folder }, args: [] }).config)).startWarnings;
}
