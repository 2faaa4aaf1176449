/**
 * What an operator repeats after a restore: the commands of docs/backup.md that list it, run as they are written there on
 * the data folder of a server that was killed.
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { settled } from '../faults/processor-load.ts';
import { folderIn, launch } from '../faults/scope.ts';
import { post, read, runSluice, user } from '../server.ts';

const PAGE = readFileSync(new URL('../../docs/backup.md', import.meta.url), 'utf8');
const OLD_FOLDER = '/var/lib/sluice.broken';
const QUERY = /^sqlite3 -readonly (?:-header )?(\S+) "([^"]+)"$/gm;
const MEMBER = { email: 'ada@example.com', password: 'correct horse battery' };

/** The block of commands that reads the old folder. */
function commands(): string {
  const [, block] = /```sh\n(sqlite3 [^`]+)```/.exec(PAGE) ?? [];
  assert.ok(block);
  return block;
}

/** Rows of the query on that file. The `sqlite3` of the page reads the same way. */
function listed<Row>(dataFolder: string, name: string): Row[] {
  const queries = Array.from(commands().matchAll(QUERY), ([, file, sql]) => ({ file, sql }));
  const query = queries.find(({ file }) => file === `${OLD_FOLDER}/${name}`);
  assert.ok(query?.sql, `docs/backup.md has no query of ${name}`);
  using database = new DatabaseSync(join(dataFolder, name), { readOnly: true });
  // Rows have no prototype, and are compared with objects.
  return JSON.parse(JSON.stringify(database.prepare(query.sql).all())) as Row[];
}

interface AuditPage {
  readonly entries: readonly { readonly kind: string; readonly at: string }[];
}

suite('The commands of docs/backup.md for what a restore undoes', () => {
  test('list unmerges, then erasures, then keys and members', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder });
    const { baseUrl, key } = server;
    const call = async (method: string, path: string, body?: object): Promise<number> => {
      const headers = { authorization: `Bearer ${key}`, origin: baseUrl };
      const json = body && { headers: { ...headers, 'content-type': 'application/json' }, body: JSON.stringify(body) };
      return (await fetch(baseUrl + path, { method, headers, ...json })).status;
    };
    const [, token = ''] = /welcome#([\w-]{43})/.exec(server.stdout()) ?? [];
    assert.equal(await call('POST', '/invitations/accept', { token, ...MEMBER }), 200);
    await post(server, key, { users: [user('gone'), user('ada')] });
    await post(server, key, { users: [{ identifiers: { anon_id: 'phone' }, events: [{ event_name: 'tested' }] }] });
    const joint = { identifiers: { user_id: 'ada', anon_id: 'phone' }, events: [{ event_name: 'tested' }] };
    const { trace_id: mergedBy } = (await post(server, key, { users: [joint] })).body as { trace_id: string };
    await settled(server, key);
    const idOf = async (name: string) => (await read<{ id: string }>(server, key, `/profiles?user_id=${name}`)).id;
    const [gone, ada] = [await idOf('gone'), await idOf('ada')];
    assert.equal(await call('DELETE', `/profiles/${gone}`), 202);
    assert.equal(await call('POST', `/profiles/${ada}/unmerge`, { trace_id: mergedBy }), 200);
    const { entries } = await read<AuditPage>(server, key, '/audit');
    await server.kill('SIGKILL');

    const atOf = (kind: string): string | undefined => {
      const { at } = entries.find((entry) => entry.kind === kind) ?? {};
      return at?.slice(0, 19).replace('T', ' ');
    };
    const rows = listed<{ tenant: string }>(dataFolder, 'store.db');
    const tenant = rows[0]?.tenant ?? '';
    assert.match(tenant, /^acct_\w+\/development$/);
    assert.deepEqual(rows, [
      { tenant, kind: 'unmerge', at: atOf('unmerge'), profile_id: ada, trace_id: mergedBy, nodes: null },
      { tenant, kind: 'erase', at: atOf('erase'), profile_id: gone, trace_id: null, nodes: 1 },
    ]);
    const members = listed<{ email: string }>(dataFolder, 'keys.db');
    assert.deepEqual(
      members.map(({ email }) => email),
      [MEMBER.email],
    );
    const [, keysList = ''] = /^sluice (.+)$/m.exec(commands()) ?? [];
    const { code, stdout } = await runSluice(keysList.replace(OLD_FOLDER, dataFolder).split(' '));
    assert.equal(code, 0);
    assert.match(stdout, /key_\w+.*development/);
  });
});
