/**
 * Where commands that use HTTP send to, and with which key: `--url` or SLUICE_URL, else the server that is running on the
 * data folder; `--key` or SLUICE_KEY. Mistakes are collected with those of the command. The key is never repeated in them.
 */

import { resolve } from 'node:path';
import type { FlagsRead } from '../config/flags.ts';
import { parseDurationMs } from '../config/values.ts';
import { readSettings } from './location.ts';
import type { Shell } from './shell.ts';

export interface IngestServer {
  /** Ends in a slash. */
  readonly url: URL;
  /** Found on the data folder: other commands can read there what was sent. */
  readonly isLocal: boolean;
}

/** Undefined where there is none, which is then among the mistakes. */
export async function readIngestServer(
  flags: FlagsRead,
  shell: Shell,
  mistakes: string[],
): Promise<IngestServer | undefined> {
  const given = flags.values.get('url') ?? shell.env['SLUICE_URL'] ?? '';
  const url = given === '' ? await findLocalServer(flags, shell, mistakes) : readUrl(given, mistakes);
  return url === undefined ? undefined : { url, isLocal: given === '' };
}

export function readIngestKey(flags: FlagsRead, shell: Shell, mistakes: string[]): string {
  const key = flags.values.get('key') ?? shell.env['SLUICE_KEY'] ?? '';
  // The key itself is not repeated: it would end up in logs.
  if (!/^[\x21-\x7e]+$/.test(key)) {
    mistakes.push(
      'no API key given; expected --key KEY, or SLUICE_KEY in the environment. To create one: sluice keys create --help',
    );
  }
  return key;
}

/** Undefined where it is not a time, which is then among the mistakes. */
export function readRetryTimeout(flags: FlagsRead, defaultMs: number, mistakes: string[]): number | undefined {
  const given = flags.values.get('retry-timeout');
  const timeoutMs = given === undefined ? defaultMs : parseDurationMs(given);
  if (timeoutMs === undefined) mistakes.push(`--retry-timeout is "${given}"; expected a time such as 10s`);
  return timeoutMs;
}

/** Without --url: the server that runs on the data folder. */
async function findLocalServer(flags: FlagsRead, shell: Shell, mistakes: string[]): Promise<URL | undefined> {
  const { config, mistakes: settingMistakes } = readSettings({ ...flags, mistakes: [] }, shell.env);
  mistakes.push(...settingMistakes);
  if (settingMistakes.length > 0) return undefined;
  const found = await shell.findServer(config);
  if (found !== undefined) return new URL('/', found);
  mistakes.push(
    `no server is running on the data folder ${resolve(config.dataFolder)}; start one (sluice serve), name another ` +
      'folder with --data FOLDER, or give the address of a server with --url URL or as SLUICE_URL',
  );
  return undefined;
}

function readUrl(text: string, mistakes: string[]): URL | undefined {
  const expected = 'expected the address of a server, such as http://127.0.0.1:8080';
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    mistakes.push(`--url is "${text}"; ${expected}`);
    return undefined;
  }
  if (url.username !== '' || url.password !== '') {
    mistakes.push('--url has a name or a password in it; the key goes into --key or SLUICE_KEY');
    return undefined;
  }
  if (!url.pathname.endsWith('/')) url.pathname += '/';
  return url;
}

/**
 * A page of the dashboard. Secret keys name their environment; for a publishable one the dashboard chooses.
 */
export function dashboardPage(server: URL, key: string, view: string): string {
  const environment = key.startsWith('sk_prod_') ? 'production' : key.startsWith('sk_dev_') ? 'development' : undefined;
  const path = environment === undefined ? 'dashboard' : `dashboard/${environment}${view === '' ? '' : `/${view}`}`;
  return new URL(path, server).href;
}
