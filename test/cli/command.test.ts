/**
 * The `sluice` command as a person runs it: its own process, exit codes, what goes to stdout and what to stderr; and
 * how it finds a Node that is new enough. An old Node is played by a new one that says it is old.
 */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { isWellFormedKey } from '../../src/keys/format.ts';
import { temporaryFolder } from '../keys/temporary-store.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const COMMAND = join(ROOT, 'bin', 'sluice.js');
const PRETEND_OLD = `data:text/javascript,Object.defineProperty(process, 'versions', { value: { node: '20.11.0' } })`;

/** A server that does not end is a failure, not a wait. */
const SLOW = { timeout: 60_000 };

interface Launch {
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly command?: string;
  readonly isOldNode?: boolean;
}

function launch({ args, env = {}, command = COMMAND, isOldNode = false }: Launch): ChildProcess {
  const nodeArgs = isOldNode ? ['--import', PRETEND_OLD] : [];
  return spawn(process.execPath, [...nodeArgs, command, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
}

async function run(options: Launch): Promise<{ code: number; stdout: string; stderr: string }> {
  const child = launch(options);
  assert.ok(child.stdout !== null && child.stderr !== null);
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return { code: code as number, stdout, stderr };
}

async function dataFolder(context: TestContext): Promise<string> {
  const { folder, remove } = await temporaryFolder();
  context.after(remove);
  return join(folder, 'data');
}

/** A server that listens; the id of its process is in its log. Ended with the test, if it is not by then. */
async function serve(
  context: TestContext,
  isOldNode: boolean,
): Promise<{ child: ChildProcess; pid: number; exited: Promise<unknown> }> {
  const child = launch({
    args: ['serve', '--port', '0', '--drain', '0', '--data', await dataFolder(context)],
    isOldNode,
  });
  const exited = once(child, 'exit');
  const pid = await new Promise<number>((resolve, reject) => {
    let stderr = '';
    child.stderr?.on('data', (chunk: Buffer) => {
      stderr += chunk.toString();
      const [, found] = /"pid":(\d+),"msg":"listening"/.exec(stderr) ?? [];
      if (found !== undefined) resolve(Number(found));
    });
    child.on('exit', () => reject(new Error(`the server ended before it listened: ${stderr}`)));
  });
  context.after(() => {
    if (child.exitCode === null && child.signalCode === null) process.kill(pid, 'SIGKILL');
  });
  return { child, pid, exited };
}

for (const isOldNode of [false, true]) {
  const how = isOldNode ? 'started by an old Node, which hands over to the pinned one' : 'started by a new Node';

  test(`help goes to stdout, with nothing on stderr: ${how}`, async () => {
    const { code, stdout, stderr } = await run({ args: ['--help'], isOldNode });
    assert.deepEqual([code, stderr], [0, '']);
    assert.match(stdout, /^sluice: receives customer events/);
    assert.match(stdout, /^ {2}export --format FORMAT /m);
  });

  test(`mistakes go to stderr, without a stack, all at once, with exit code 1: ${how}`, async (context) => {
    const data = await dataFolder(context);
    const env = { PORT: 'http', SLUICE_DATA: data };
    const { code, stdout, stderr } = await run({ args: ['serve', '--egdes', '2'], env, isOldNode });
    assert.deepEqual([code, stdout], [1, '']);
    assert.match(stderr, /unknown flag --egdes; did you mean --edges\?\n.*PORT is "http"; expected a whole number/);
    assert.ok(!/^\s+at /m.test(stderr), stderr);
    assert.ok(!existsSync(data));
  });

  test(`SIGTERM ends the server in order: ${how}`, SLOW, async (context) => {
    const { child, pid, exited } = await serve(context, isOldNode);
    assert.equal(pid === child.pid, !isOldNode);
    child.kill('SIGTERM');
    assert.deepEqual(await exited, [0, null]);
    assert.throws(() => process.kill(pid, 0), { code: 'ESRCH' });
  });
}

test('a server that is killed makes the command that started it say so by its exit code', SLOW, async (context) => {
  const { pid, exited } = await serve(context, true);
  process.kill(pid, 'SIGKILL');
  assert.deepEqual(await exited, [137, null]);
});

test('without any Node that is new enough, one sentence says which is needed', async (context) => {
  const bin = join(await dataFolder(context), 'bin');
  await mkdir(bin, { recursive: true });
  await writeFile(join(bin, '..', 'package.json'), '{ "type": "module" }');
  const command = join(bin, 'sluice.js');
  await copyFile(COMMAND, command);
  const { code, stdout, stderr } = await run({ args: ['--help'], command, isOldNode: true });
  assert.deepEqual([code, stdout], [1, '']);
  assert.match(stderr, /^sluice needs Node\.js 26 or newer; this is 20\.11\.0\. .*\n$/);
});

test('a published package, which has no sources, runs what was compiled', async (context) => {
  const folder = await dataFolder(context);
  await mkdir(join(folder, 'bin'), { recursive: true });
  await mkdir(join(folder, 'dist'));
  await writeFile(join(folder, 'package.json'), '{ "type": "module" }');
  await writeFile(join(folder, 'dist', 'main.js'), 'process.stdout.write(process.argv.slice(2).join());');
  const command = join(folder, 'bin', 'sluice.js');
  await copyFile(COMMAND, command);
  assert.deepEqual(await run({ args: ['keys', 'list'], command }), { code: 0, stdout: 'keys,list', stderr: '' });
});

test('the version is the one of the package', async () => {
  const { version } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  assert.deepEqual(await run({ args: ['--version'] }), { code: 0, stdout: `sluice ${version}\n`, stderr: '' });
});

test('an unknown command is refused with the one that was meant', async () => {
  const { code, stdout, stderr } = await run({ args: ['sevre'] });
  assert.deepEqual([code, stdout], [1, '']);
  assert.match(stderr, /"sevre" is not a command; did you mean serve\?/);
});

test('help for one command comes by help and by --help, and reads no settings', async () => {
  const env = { PORT: 'http' };
  const { code, stdout, stderr } = await run({ args: ['help', 'keys', 'create'], env });
  assert.deepEqual([code, stderr], [0, '']);
  assert.match(stdout, /^sluice keys create: .*--origins LIST/s);
  assert.equal((await run({ args: ['keys', 'create', '--name', 'x', '--help'], env })).stdout, stdout);
  assert.match((await run({ args: ['serve', '-h'], env })).stdout, /--in-flight-bytes SIZE/);
});

test('a key that one process made is listed, then revoked, by others', async (context) => {
  const env = { SLUICE_DATA: await dataFolder(context) };
  const create = ['keys', 'create', '--name', 'shop', '--kind', 'secret', '--env', 'development', '--json'];
  const made = JSON.parse((await run({ args: create, env })).stdout) as { key: string; id: string };
  assert.ok(isWellFormedKey(made.key));
  const list = await run({ args: ['keys', 'list'], env });
  assert.match(list.stdout, new RegExp(`^${made.id} +shop +secret .* active$`, 'm'));
  assert.equal((await run({ args: ['keys', 'revoke', made.id], env })).code, 0);
  assert.match((await run({ args: ['keys', 'list'], env })).stdout, new RegExp(`^${made.id} .* revoked$`, 'm'));
});

test('the settings are shown as JSON for programs', async () => {
  const { code, stdout, stderr } = await run({ args: ['config', '--json'], env: { PORT: '9000' } });
  assert.deepEqual([code, stderr], [0, '']);
  const [port] = JSON.parse(stdout) as { setting: string; value: string; source: string }[];
  assert.deepEqual([port?.setting, port?.value, port?.source], ['port', '9000', 'environment']);
});
