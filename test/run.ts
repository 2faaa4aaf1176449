/**
 * What `npm test` runs: looks for the tools that some tests need and gets what is missing, showing what it does, bundles
 * the program and starts the servers that tests share, where the run has tests that need them, then runs each file in a
 * process of its own and says at the end which files took longest. Arguments are test files or folders; `--quick` stands for the quick ones, and
 * without any, all tests run.
 */

import { availableParallelism, tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { chosenFiles, ROOT } from './choice.ts';
import { importedBy } from './imports.ts';
import { bundleProgram } from './program.ts';
import { startSharedServers } from './servers/shared.ts';
import { SDK_TOOLS } from './sdks/registries.ts';
import { BROWSER, ensureTools, FAKETIME } from './tools.ts';

const TOOLS = ['strace', 'mkfs.ext4', 'mount', 'perl', BROWSER, FAKETIME];
/** Imported by every test that needs one of them. */
const TOOLS_FILE = resolve(ROOT, 'test/tools.ts');
/** Imported by every test that uses SDKs of other makers, in languages of their own. */
const SDKS_FILE = resolve(ROOT, 'test/sdks/registries.ts');
/** Imported by every test that starts the program. */
const STARTING_FILE = resolve(ROOT, 'test/server.ts');
const SLOWEST_SHOWN = 10;
const FILE_MS_MAX = 15 * 60_000;
/** Where Node keeps it by itself: servers and commands that the tests start find there what others have compiled. */
const COMPILE_CACHE = join(tmpdir(), 'node-compile-cache');
/**
 * The first `npx sluice` in a checkout links it into npm's cache, and for that runs the scripts of an installation: it
 * would build the dashboard again, under the other tests.
 */
const NPM_SETTINGS = { npm_config_ignore_scripts: 'true' };

const [major] = process.versions.node.split('.');
if (Number(major) < 26) {
  console.error(`Sluice is tested on Node.js 26; this is ${process.version}. Run the tests with "npm test".`);
  process.exit(1);
}

const files = chosenFiles(process.argv.slice(2)).map((file) => resolve(ROOT, file));
const imported = importedBy(files);
if (imported.has(TOOLS_FILE)) {
  await ensureTools(imported.has(SDKS_FILE) ? [...TOOLS, ...SDK_TOOLS] : TOOLS, (line) => console.log(line));
}
const program = imported.has(STARTING_FILE) ? { TEST_PROGRAM: await bundleProgram() } : {};
const servers = await startSharedServers(files, (line) => console.log(line));
const stopping = new AbortController();
// The tests are ended, and then the servers end.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stopping.abort());

const results = run({
  files,
  // Half of the cores are left to the servers that the tests start; but many tests wait for a fault to heal, so three at least.
  concurrency: Math.max(3, Math.floor(availableParallelism() / 2)),
  // A file that hangs is ended and named.
  timeout: FILE_MS_MAX,
  signal: stopping.signal,
  env: { ...process.env, ...NPM_SETTINGS, NODE_COMPILE_CACHE: COMPILE_CACHE, ...program, ...servers.env },
});
let isSuccess = false;
const taken: { file: string; ms: number }[] = [];
results.on('test:summary', ({ file, duration_ms: ms, success }) => {
  // The one of no file is of all files together.
  if (file === undefined) isSuccess = success;
  else taken.push({ file: relative(ROOT, file), ms });
});
for await (const text of results.compose(new spec())) process.stdout.write(text as string);

if (taken.length > 1) {
  taken.sort((a, b) => b.ms - a.ms);
  const seconds = Math.round(performance.now() / 1_000);
  console.log(`\n${taken.length} files in ${seconds} s. The slowest, in seconds:`);
  for (const { file, ms } of taken.slice(0, SLOWEST_SHOWN))
    console.log(`${(ms / 1_000).toFixed(1).padStart(7)} ${file}`);
}
await servers.close();
process.exit(isSuccess && !stopping.signal.aborted ? 0 : 1);
