/**
 * What a test starts or mounts is undone when the test is left, in reverse order, also when it fails: `await using scope
 * = new AsyncDisposableStack()`. The order matters here: a disk cannot be unmounted under a running server.
 */

import assert from 'node:assert/strict';
import { cpSync } from 'node:fs';
import { removeFolder, type ServerOptions, startServer, type TestServer, temporaryFolder } from '../server.ts';

export type Scope = AsyncDisposableStack;

/** A server that is killed, by its process id, at the end. */
export async function launch(scope: Scope, options: ServerOptions): Promise<TestServer> {
  const server = await startServer(options);
  scope.defer(async () => {
    await server.kill('SIGKILL');
  });
  return server;
}

/** What a server says that refuses to start, with code 1 and in words. */
export async function refusedStart(options: ServerOptions): Promise<string> {
  const words = await startServer(options).then(
    async (server) => {
      await server.kill('SIGKILL');
      return assert.fail('the server started');
    },
    (error: Error) => error.message,
  );
  assert.match(words, /the server ended \(1\) before it listened/);
  assert.match(words, /^sluice: /m);
  assert.doesNotMatch(words, /^ {4}at /m, 'a stack is no explanation');
  return words;
}

/** A copy of a folder that was filled once for all tests of a file, which take no harm from each other this way. */
export function copyIn(scope: Scope, original: string): string {
  const folder = folderIn(scope);
  cpSync(original, folder, { recursive: true });
  return folder;
}

export function folderIn(scope: Scope): string {
  const folder = temporaryFolder();
  scope.defer(() => removeFolder(folder));
  return folder;
}
