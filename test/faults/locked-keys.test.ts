/**
 * Another program holds the lock of `keys.db` for some seconds (a backup, a person with a SQLite shell). People who sign
 * in meanwhile get 503; events are accepted as usual.
 */

import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { keyFileOf } from '../../src/data-folder/files.ts';
import { eventually } from '../server.ts';
import { folderIn, launch } from './scope.ts';

/** The server gives up on the lock after 5 s; a request that waits for that waits longer than this. */
const PROMPT_MS = 4_500;
const BODY = JSON.stringify({ users: [{ identifiers: { user_id: 'u1' }, events: [{ event_name: 'seen' }] }] });

test('while the key file is locked, sign-in is 503 and events are taken at once', { timeout: 60_000 }, async () => {
  await using scope = new AsyncDisposableStack();
  const server = await launch(scope, { dataFolder: folderIn(scope) });
  const post = (path: string, headers: Record<string, string>, body: string): Promise<Response> => {
    const all = { 'content-type': 'application/json', ...headers };
    return fetch(server.baseUrl + path, { method: 'POST', headers: all, body });
  };
  const ingest = (): Promise<Response> => post('/ingest/events', { authorization: `Bearer ${server.key}` }, BODY);
  const signIn = (): Promise<Response> =>
    post('/session', { origin: server.baseUrl }, JSON.stringify({ email: 'a@example.com', password: 'wrong' }));
  assert.equal((await ingest()).status, 202);

  const other = new DatabaseSync(keyFileOf(server.dataFolder), { timeout: 5_000 });
  other.exec('BEGIN IMMEDIATE');
  const signingIn = Promise.all([signIn(), signIn(), signIn()]);
  // The server has it by now: each response comes after what was sent before, and three times 5 s would be seen.
  const started = performance.now();
  for (let requests = 0; requests < 10; requests += 1) assert.equal((await ingest()).status, 202);
  const tookMs = performance.now() - started;
  assert.ok(tookMs < PROMPT_MS, `events waited for ${tookMs} ms`);

  const statuses = (await signingIn).map(({ status }) => status);
  assert.deepEqual(statuses, [503, 503, 503]);
  await eventually('the log says why', () =>
    /keys and members cannot be read or written: .*locked/.test(server.stderr()),
  );
  other.exec('ROLLBACK');
  other.close();
  assert.equal((await signIn()).status, 401);
});
