/** How events are packed into bytes: what goes in comes out, in order. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { type BlockEvent, BlockWriter, unpackBlock } from '../../../src/backends/embedded/store/event-blocks.ts';
import { isDamage } from '../../../src/backends/embedded/database.ts';
import { uuidBytes, uuidText } from '../../../src/backends/embedded/uuids.ts';

const TENANT = 7;
/** The oldest and the newest day that a timestamp can name. */
const [OLDEST, NEWEST] = [Date.UTC(0) - 1e14, Date.UTC(9999, 11, 31)];

function blockOf(events: readonly BlockEvent[]): BlockEvent[] {
  const writer = new BlockWriter();
  for (const event of events) assert.ok(writer.add(event.no, event.node, event.record, event.userIndex, event));
  assert.equal(writer.events, events.length);
  return unpackBlock(TENANT, writer.take());
}

function event(no: number, about: Partial<BlockEvent> = {}): BlockEvent {
  return {
    no,
    tenant: TENANT,
    node: no * 3,
    timestamp: Date.UTC(2026, 0) + no,
    record: 1 + Math.floor(no / 10),
    userIndex: no % 1_000,
    eventIndex: 0,
    name: 'tested',
    revenue: null,
    value: null,
    properties: '{}',
    ...about,
  };
}

suite('The bytes of a UUID', () => {
  test('are its digits, in either case, and give it back', () => {
    for (const uuid of ['01957000-0000-7000-8000-00000000ac70', 'ffffffff-0123-4567-89ab-cdeffedcba98']) {
      const expected = Buffer.from(uuid.replaceAll('-', ''), 'hex');
      assert.deepEqual(Buffer.from(uuidBytes(uuid)), expected);
      assert.deepEqual(Buffer.from(uuidBytes(uuid.toUpperCase())), expected);
      assert.equal(uuidText(uuidBytes(uuid)), uuid);
    }
  });
});

suite('A block of events', () => {
  test('events of all kinds come out as they went in', () => {
    const events = [
      event(1_000_000, { node: null, name: 'ä €\u{1F600}', properties: '{"a":"\u{1F600}"}' }),
      event(1_000_001, { revenue: 0.1, value: '12345678901234567890' }),
      event(1_000_002, { revenue: '1e400', value: -5e-324, timestamp: OLDEST }),
      event(1_000_009, { timestamp: NEWEST, record: 2 ** 40, name: '\0', node: 2 ** 40 }),
      event(1_000_010, { record: 2 ** 40, eventIndex: 500_000 }),
    ];
    assert.deepEqual(blockOf(events), events);
  });

  test('a large event has a block of its own', () => {
    const large = event(2, { properties: JSON.stringify({ long: 'x'.repeat(100_000) }) });
    assert.deepEqual(blockOf([large]), [large]);
    const writer = new BlockWriter();
    assert.ok(writer.add(1, 3, 1, 1, event(1)));
    assert.ok(!writer.add(2, 6, 1, 2, large));
    assert.deepEqual(unpackBlock(TENANT, writer.take()), [event(1)]);
  });

  test('event ids come out where they were, UUIDs or not', () => {
    const id = '0195f2a0-89ab-7def-8123-00000000ac70';
    const properties = [
      `{"$event_id":"${id}"}`,
      `{"page":"/ü","$event_id":"${id}"}`,
      `{"$event_id":"${id}","$event_id ":"${id}"}`,
      `{"nested":{"$event_id":"${id}"},"$event_id":"${uuidText(Buffer.alloc(16, 7))}"}`,
      `{"$event_id":"${id.toUpperCase()}"}`,
      `{"$event_id":"${id}0"}`,
      `{"$event_id":"order-1"}`,
      `{"$event_id":null}`,
      `{"text":"\\"$event_id\\":\\"${id}\\""}`,
      '{}',
    ];
    const events = properties.map((one, at) => event(at + 1, { properties: one }));
    assert.deepEqual(blockOf(events), events);
    assert.deepEqual(blockOf(events.toReversed()), events.toReversed());
  });

  test('a block of events with UUIDs as their ids has as many as fit into a page', () => {
    const writer = new BlockWriter();
    const properties = `{"$event_id":"0195f2a0-89ab-7def-8123-00000000ac70","page":"${'x'.repeat(100)}"}`;
    for (let no = 0; writer.add(no, no, 1, no, event(no, { properties })); no++);
    const { numbers, texts } = writer.take();
    const bytes = numbers.length + texts.length;
    assert.ok(bytes > 7_600 && bytes <= 8_120, `${bytes} bytes`);
  });

  test('half a character at the end of a name stays apart from what follows', () => {
    const [first, second] = blockOf([event(1, { name: 'a\uD83D', properties: '{}' }), event(2, { name: '\uDE00b' })]);
    assert.deepEqual([first?.name, second?.name], ['a\uFFFD', '\uFFFDb']);
    assert.deepEqual([first?.properties, second?.properties], ['{}', '{}']);
  });

  test('a byte that was changed is reported as damage, whichever it is', () => {
    const writer = new BlockWriter();
    const eventId = '"$event_id":"0195f2a0-89ab-7def-8123-00000000ac70"';
    for (let no = 1; no <= 20; no++)
      writer.add(no, no, 1, no, event(no, { properties: `{${eventId},"page":"/p/${no * 7919}"}` }));
    const block = writer.take();
    for (const part of ['numbers', 'texts'] as const) {
      for (let at = 0; at < block[part].length; at++) {
        const changed = Buffer.from(block[part]);
        changed[at] = (changed[at] as number) ^ 0x55;
        assert.throws(() => unpackBlock(TENANT, { ...block, [part]: changed }), isDamage, `byte ${at} of ${part}`);
      }
      assert.throws(() => unpackBlock(TENANT, { ...block, [part]: block[part].subarray(0, -1) }), isDamage);
    }
  });

  test('a writer begins afresh after a block was taken or cleared', () => {
    const writer = new BlockWriter();
    for (const [no, end] of [
      [5, () => writer.take()],
      [6, () => writer.clear()],
    ] as const) {
      writer.add(no, 1, 1, 1, event(no));
      end();
      assert.equal(writer.events, 0);
    }
    writer.add(9, 27, 1, 9, event(9));
    assert.deepEqual(unpackBlock(TENANT, writer.take()), [event(9)]);
  });
});
