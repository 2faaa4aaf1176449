/**
 * What a test starts or mounts is undone when the test is left, in reverse order, also when it fails: `await using scope
 * = new AsyncDisposableStack()`. The order matters here: a disk cannot be unmounted under a running server.
 */

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

export function folderIn(scope: Scope): string {
  const folder = temporaryFolder();
  scope.defer(() => removeFolder(folder));
  return folder;
}
