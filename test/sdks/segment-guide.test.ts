/** Every snippet of docs/segment.md is run as it is printed, each in a program of its own, and its event is stored. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { suite, test } from 'node:test';
import { promisify } from 'node:util';
import { ask, useServer } from '../edge/fixture.ts';
import { eventually, PROGRAM_ENV } from '../server.ts';
import { type Command, nodeCommand, pythonCommand } from './clients.ts';
import { whyNot } from './registries.ts';

const run = promisify(execFile);
const GUIDE = readFileSync(new URL('../../docs/segment.md', import.meta.url), 'utf8');

interface Snippet {
  readonly language: string;
  readonly text: string;
}

const snippets: Snippet[] = Array.from(GUIDE.matchAll(/^```(\w+)\n(.*?)^```$/gms), ([, language = '', text = '']) => ({
  language,
  text,
}));

suite('The guide for Segment’s SDKs', () => {
  const server = useServer();
  const env = () => ({ ...PROGRAM_ENV, SLUICE_URL: server().baseUrl, SLUICE_KEY: server().key });
  const runCommand = async ({ program, args, cwd, env: more }: Command): Promise<void> => {
    await run(program, args, { cwd, env: { ...env(), ...more } });
  };
  const textOf = (language: string, part: string): string => {
    const found = snippets.filter((one) => one.language === language && one.text.includes(part));
    assert.equal(found.length, 1);
    return found[0]?.text ?? '';
  };
  const isStored = async (event: string): Promise<void> => {
    await eventually(`${event} is stored`, async () => {
      const path = `/events?event_name=${encodeURIComponent(event)}`;
      const { body } = await ask(server(), path, { headers: { authorization: `Bearer ${server().key}` } });
      return (body as { events: unknown[] }).events.length === 1;
    });
  };

  test('has no snippet that is not run', () => {
    assert.deepEqual(
      snippets.map(({ language }) => language),
      ['js', 'js', 'python', 'sh', 'json'],
    );
  });

  for (const [sdk, event] of [
    ['@segment/analytics-node', 'Order Completed'],
    ['@rudderstack/rudder-sdk-node', 'Order Shipped'],
  ] as const) {
    test(`shows how to use ${sdk}`, async () => {
      await runCommand(await nodeCommand(textOf('js', sdk)));
      await isStored(event);
    });
  }

  test('shows how to use Segment’s Python SDK', { skip: whyNot('python3', 'pip3') }, async () => {
    await runCommand(await pythonCommand('-c', textOf('python', 'segment.analytics')));
    await isStored('Order Returned');
  });

  test('shows what the server responds', async () => {
    const { stdout } = await run('bash', ['-euo', 'pipefail', '-c', textOf('sh', 'curl')], { env: env() });
    const withoutId = (text: string): string => text.trim().replace(/"trace_id":"[^"]+"/, '');
    assert.equal(withoutId(stdout), withoutId(textOf('json', 'trace_id')));
    await isStored('Order Cancelled');
  });
});
