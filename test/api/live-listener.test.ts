/** One stream, on a real connection and by a clock that the tests set. */

import assert from 'node:assert/strict';
import { createServer, get, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { suite, type TestContext, test } from 'node:test';
import { LiveEvent, LiveListener } from '../../src/api/live-listener.ts';
import type { ArrivedEvent } from '../../src/store.ts';
import { eventually } from '../server.ts';
import { EVENT } from './canned-store.ts';

const NO_FILTER = { eventName: null, profileId: null, keyId: null };
const START = 1_000_000;

async function listen(context: TestContext, isReading = true) {
  const opened = Promise.withResolvers<ServerResponse>();
  const server = createServer((_request, response) => opened.resolve(response)).listen(0, '127.0.0.1');
  await new Promise((resolve) => {
    server.once('listening', resolve);
  });
  const { port } = server.address() as AddressInfo;
  let text = '';
  let isOver = false;
  const answered = new Promise<IncomingMessage>((resolve) => {
    get({ port, host: '127.0.0.1', agent: false }, resolve).on('error', () => {});
  });
  const response = await opened.promise;
  const start = { place: 'start', sequence: 0 };
  const parts = { filter: NO_FILTER, person: new Set<string>(), start, traceId: 'trace', now: START };
  const listener = new LiveListener(response, parts);
  const incoming = await answered;
  incoming
    .on('error', () => {})
    .on('close', () => {
      isOver = true;
    });
  if (isReading) {
    incoming.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
  }
  context.after(() => {
    incoming.destroy();
    server.close();
  });
  const comes = (what: string): Promise<unknown> => eventually(what, () => text.includes(what));
  return { listener, response, comes, text: () => text, isOver: () => isOver };
}

function event(sequence: number, more: Partial<ArrivedEvent> = {}): LiveEvent {
  return new LiveEvent({ ...EVENT, sequence, place: `place-${sequence}`, ...more });
}

suite('A live stream', () => {
  test('gives a sign of life every 15 seconds, with the place that it has come to', async (t) => {
    const { listener, comes, text } = await listen(t);
    listener.moveTo({ place: 'further', sequence: 9 });
    listener.tick(START + 14_999);
    listener.tick(START + 15_000);
    await comes(': still here\nid: further\n\n');
    listener.tick(START + 29_999);
    listener.tick(START + 30_000);
    await eventually('another', () => text().split('still here').length === 3);
  });

  test('passes over what it has had, and writes JSON on one line', async (t) => {
    const { listener, comes, text } = await listen(t);
    listener.offer(event(1), START);
    listener.offer(event(1), START);
    listener.offer(event(2, { properties: '{"a":\r\n[1,\n2]}' }), START);
    await comes('id: place-2\n');
    await comes('[1, 2]');
    const messages = text().split('\n\n').slice(1, -1);
    assert.deepEqual(
      messages.map((message) => message.split('\n').map((line) => line.slice(0, 5))),
      [
        ['id: p', 'event', 'data:'],
        ['id: p', 'event', 'data:'],
      ],
    );
  });

  test('skips what is faster than 50 a second or larger than a page can bear, and says so in its place', async (t) => {
    const { listener, comes, text } = await listen(t);
    for (let n = 1; n <= 60; n++) listener.offer(event(n), START);
    listener.tick(START + 999);
    listener.offer(event(61), START + 1_000);
    listener.offer(event(62, { properties: JSON.stringify({ x: 'x'.repeat(1_100_000) }) }), START + 1_000);
    listener.tick(START + 2_000);
    await comes('id: place-62\nevent: skipped\ndata: {"events":1}');
    const ids = [...text().matchAll(/id: place-(\d+)\nevent: (\w+)/g)].map(([, id, name]) => `${name} ${id}`);
    assert.deepEqual(ids.slice(48), ['event 49', 'event 50', 'skipped 60', 'event 61', 'skipped 62']);
    assert.ok(text().includes('data: {"events":10}'));
  });

  test('holds a bounded part for a reader who does not read, and lets that one go after 30 seconds', async (t) => {
    const { listener, response, isOver } = await listen(t, false);
    const large = JSON.stringify({ x: 'x'.repeat(900_000) });
    for (let n = 1; n <= 40; n++) listener.offer(event(n, { properties: large }), START + n * 1_000);
    assert.ok(response.writableLength > 2_000_000 && response.writableLength < 4_000_000, `${response.writableLength}`);
    listener.tick(START + 50_000);
    listener.tick(START + 79_999);
    assert.ok(listener.isOpen && !isOver());
    listener.tick(START + 80_000);
    await eventually('it is let go', () => !listener.isOpen);
  });

  test('ends when it is closed, also for a reader who does not read', async (t) => {
    const { listener, isOver } = await listen(t);
    listener.close();
    await eventually('the reader hears it', isOver);
    const stuck = await listen(t, false);
    const large = JSON.stringify({ x: 'x'.repeat(900_000) });
    for (let n = 1; n <= 20; n++) stuck.listener.offer(event(n, { properties: large }), START);
    stuck.listener.close();
    await eventually('its connection is gone', () => stuck.response.destroyed, 3_000);
  });
});
