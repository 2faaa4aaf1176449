/** Property names that are written with an escape: from a request to what is read back of it. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { settled } from '../faults/processor-load.ts';
import { folderIn, launch } from '../faults/scope.ts';
import { post } from '../server.ts';

/** Pairs of objects; a name of the second begins, as it is written, with one of the first. */
const PAIRS = [
  ['{"A":1,"\\\\n":1}', '{"A":1,"\\nb":1}'],
  ['{"B":1,"\\\\\\\\":1}', '{"B":1,"\\\\x":1}'],
  ['{"C":1,"\\\\":{"C":1}}', '{"C":1,"\\"":{"C":1}}'],
] as const;

suite('Escaped property names', () => {
  test('come back as they were sent, in profiles, events and rejections', async () => {
    await using scope = new AsyncDisposableStack();
    const server = await launch(scope, { dataFolder: folderIn(scope) });
    const { key } = server;
    const read = async (path: string): Promise<string> => {
      const headers = { authorization: `Bearer ${key}` };
      return (await fetch(server.baseUrl + path, { headers })).text();
    };
    const texts = PAIRS.flat();
    for (const [index, text] of texts.entries()) {
      const who = `"identifiers":{"user_id":"u${index}"}`;
      const valid = `{${who},"user_properties":${text},"events":[{"event_name":"seen",${text.slice(1)}]}`;
      const { status } = await post(server, key, `{"users":[${valid},{${who},"sent":${text}}]}`);
      assert.equal(status, 202);
    }
    await settled(server, key);
    for (const [index, text] of texts.entries()) {
      // Not parsed here: this program has the same engine.
      const profile = await read(`/profiles?user_id=u${index}`);
      // Sorted by name, so the member may be the first.
      const member = text.slice(text.indexOf(',') + 1, -1);
      assert.ok(profile.includes(`${member},"`) || profile.includes(`,${member}}`), `${text} in ${profile}`);
      const id = (JSON.parse(profile) as { id: string }).id;
      const events = await read(`/profiles/${id}/events`);
      assert.ok(events.includes(`"properties":${text}`), `${text} in ${events}`);
    }
    const rejections = await read('/rejections');
    for (const text of texts) assert.ok(rejections.includes(`"sent":${text}`), `${text} in ${rejections}`);
  });
});
