/**
 * What `npm test` runs: looks for the tools that some tests need and gets what is missing, showing what it does, then
 * hands over to Node's test runner. Arguments are test files or folders; without any, all tests run.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureTools } from './tools.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const TOOLS = ['strace', 'mkfs.ext4', 'mount', 'perl', 'chromium'];

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

// Half of the cores are left to the servers that the tests start.
const concurrency = Math.max(2, Math.floor(availableParallelism() / 2));
const files = filesOf(process.argv.slice(2)).sort();
const runner = spawn(process.execPath, ['--test', `--test-concurrency=${concurrency}`, ...files], {
  cwd: ROOT,
  stdio: 'inherit',
});
const [code] = (await once(runner, 'close')) as [number | null];
process.exit(code ?? 1);
