/** The snippets of docs/segment.md, and how each is run: as it is printed, in a program of its own. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { ask } from '../edge/fixture.ts';
import { eventually, PROGRAM_ENV, type TestServer } from '../server.ts';
import type { Command } from './clients.ts';

const run = promisify(execFile);
const GUIDE = readFileSync(new URL('../../docs/segment.md', import.meta.url), 'utf8');

export interface Snippet {
  readonly language: string;
  readonly text: string;
}

export const SNIPPETS: readonly Snippet[] = Array.from(
  GUIDE.matchAll(/^```(\w+)\n(.*?)^```$/gms),
  ([, language = '', text = '']) => ({ language, text }),
);

/** The one snippet in a language that has this part. */
export function snippetWith(language: string, part: string): string {
  const found = SNIPPETS.filter((one) => one.language === language && one.text.includes(part));
  assert.equal(found.length, 1, `${language} with ${part}`);
  return found[0]?.text ?? '';
}

/** Runs a snippet with the address and the key that it takes from its environment, and returns what it prints. */
export async function runSnippet(server: TestServer, { program, args, cwd, env }: Command): Promise<string> {
  const task = { SLUICE_URL: server.baseUrl, SLUICE_KEY: server.key };
  const { stdout } = await run(program, args, { cwd, env: { ...PROGRAM_ENV, ...env, ...task } });
  return stdout;
}

/** Resolves once exactly one event of the name is stored. */
export async function isStored(server: TestServer, event: string): Promise<void> {
  await eventually(`${event} is stored`, async () => {
    const path = `/events?event_name=${encodeURIComponent(event)}`;
    const { body } = await ask(server, path, { headers: { authorization: `Bearer ${server.key}` } });
    return (body as { events: unknown[] }).events.length === 1;
  });
}
