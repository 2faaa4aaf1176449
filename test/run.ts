/**
 * What `npm test` runs: looks for the tools that some tests need and gets what is missing, showing what it does, starts
 * the servers that tests share, where the run has tests that need them, then hands over to Node's test runner.
 * Arguments are test files or folders; without any, all tests run.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startSharedServers } from './servers/shared.ts';
import { ensureTools, FAKETIME } from './tools.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const TOOLS = ['strace', 'mkfs.ext4', 'mount', 'perl', 'chromium', FAKETIME];

function filesOf(args: readonly string[]): string[] {
  if (args.length === 0) return globSync('test/**/*.test.ts', { cwd: ROOT });
  return args.flatMap((arg) => {
    const isFolder = statSync(join(ROOT, arg), { throwIfNoEntry: false })?.isDirectory();
    return isFolder === true ? globSync(`${arg}/**/*.test.ts`, { cwd: ROOT }) : [arg];
  });
}

const [major] = process.versions.node.split('.');
if (Number(major) < 26) {
  console.error(`Sluice is tested on Node.js 26; this is ${process.version}. Run the tests with "npm test".`);
  process.exit(1);
}

await ensureTools(TOOLS, (line) => console.log(line));

const files = filesOf(process.argv.slice(2)).sort();
const servers = await startSharedServers(
  files.map((file) => resolve(ROOT, file)),
  (line) => console.log(line),
);
// Half of the cores are left to the servers that the tests start; but many tests wait for a fault to heal, so three at least.
const concurrency = Math.max(3, Math.floor(availableParallelism() / 2));
const runner = spawn(process.execPath, ['--test', `--test-concurrency=${concurrency}`, ...files], {
  cwd: ROOT,
  stdio: 'inherit',
  env: { ...process.env, ...servers.env },
});
// The runner ends its tests, and then the servers end.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => runner.kill(signal));
const [code] = (await once(runner, 'close')) as [number | null];
await servers.close();
process.exit(code ?? 1);
