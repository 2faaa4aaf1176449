/**
 * The SDK as npm would install it, in Node.js 20 and 22, Bun and Deno, each from npm at a pinned version, against the real
 * server. Run by `npm run test:sdk-runtimes`, not by `npm test`: getting four runtimes takes about half a minute.
 */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { promisify } from 'node:util';
import { useServer } from '../edge/fixture.ts';
import { npmPackages } from '../sdks/registries.ts';
import { PROGRAM_ENV, removeFolder, temporaryFolder } from '../server.ts';
import { SDK } from './built-script.ts';
import { storedNumbers } from './stored.ts';

const run = promisify(execFile);
const RUN_MS_MAX = 60_000;

interface Runtime {
  readonly name: string;
  /** The package that has the program itself, for this system: nothing is run to install it. */
  readonly package: string;
  /** Below the package. */
  readonly program: string;
  readonly args: readonly string[];
}

const SYSTEM = `${process.platform}-${process.arch}`;
const RUNTIMES: readonly Runtime[] = [
  { name: 'Node.js 20', package: `node-${SYSTEM}@20.20.2`, program: 'bin/node', args: [] },
  { name: 'Node.js 22', package: `node-${SYSTEM}@22.23.3`, program: 'bin/node', args: [] },
  { name: 'Bun', package: `@oven/bun-${SYSTEM}@1.4.4`, program: 'bin/bun', args: ['run'] },
  {
    name: 'Deno',
    package: `@deno/${SYSTEM}${process.platform === 'linux' ? '-glibc' : ''}@2.9.6`,
    program: 'deno',
    // It may use the network, and nothing else of the machine.
    args: ['run', '--no-prompt', '--node-modules-dir=manual', '--allow-net=127.0.0.1'],
  },
];

const PROGRAM = `
import { Sluice } from '@sluice/sdk';
const [url, key, name] = process.argv.slice(2);
const sluice = new Sluice({ url, key });
let rejections = 0;
sluice.on('rejected', () => rejections++);
sluice.user({ user_id: name }).identify({ plan: 'pro' });
for (let n = 0; n < 150; n++) sluice.user({ user_id: name }).track(name, { n });
sluice.user({ user_id: name }).track(name, { revenue: 'a lot' });
const { delivered, rejected, dropped, pending } = await sluice.close();
console.log(JSON.stringify({ delivered, message: rejected[0]?.message, rejections, dropped, pending }));
// Waits for nothing: the program must end although this batch is not due.
new Sluice({ url, key }).user({ user_id: name }).track(name, { n: -1 });
`;

suite('The SDK in other runtimes', () => {
  const server = useServer();
  const folder = temporaryFolder();

  before(async () => {
    const installed = join(folder, 'node_modules/@sluice/sdk');
    mkdirSync(installed, { recursive: true });
    cpSync(join(SDK, 'package.json'), join(installed, 'package.json'));
    const tsc = join(SDK, '../node_modules/.bin/tsc');
    await run(tsc, ['-p', join(SDK, 'tsconfig.build.json'), '--outDir', join(installed, 'dist')]);
    writeFileSync(join(folder, 'package.json'), '{"type":"module","dependencies":{"@sluice/sdk":"*"}}');
    writeFileSync(join(folder, 'program.mjs'), PROGRAM);
  });
  after(() => removeFolder(folder));

  for (const runtime of RUNTIMES) {
    test(`${runtime.name}: calls are delivered once, rejections are reported, and the program ends`, async () => {
      const name = runtime.name.toLowerCase().replaceAll(/\W+/g, '_');
      const packages = await npmPackages(runtime.program.replace('bin/', ''), [runtime.package]);
      const [packageName = ''] = /^@?[^@]+/.exec(runtime.package) ?? [];
      const program = join(packages, 'node_modules', packageName, runtime.program);
      const { stdout } = await run(program, [...runtime.args, 'program.mjs', server().baseUrl, server().key, name], {
        cwd: folder,
        env: PROGRAM_ENV,
        timeout: RUN_MS_MAX,
      });
      assert.deepEqual(JSON.parse(stdout), {
        delivered: 151,
        message: 'events[0].revenue must be a number',
        rejections: 1,
        dropped: 0,
        pending: 0,
      });
      const numbers = Array.from({ length: 150 }, (_, n) => n);
      assert.deepEqual(await storedNumbers(server(), name), numbers);
    });
  }
});
