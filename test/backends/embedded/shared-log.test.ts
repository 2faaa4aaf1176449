/**
 * Several edges that append to one log, through real ports to a real writer thread: whatever arrives when and where, no
 * record is before one that was acknowledged before it was received, `received_at` never goes back, and the log is closed
 * when the last edge has left it.
 */

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import * as fc from 'fast-check';
import { joinEmbeddedLog, openEmbeddedLogAppender } from '../../../src/backends/embedded/log/appender.ts';
import { openEmbeddedLogReader } from '../../../src/backends/embedded/log/reader.ts';
import type { LogAppender, LogRecord } from '../../../src/log.ts';
import { entry, readAll } from '../../contract/log-entries.ts';
import { folderIn, type Scope } from '../../faults/scope.ts';
import { traceIdOf } from '../../processor/history.ts';

const EDGES = 3;
const START = Date.UTC(2026, 5, 1);
/** Some are handed to the writer by themselves (64 kB), and then in several groups. */
const PADS = [0, 0, 0, 10_000, 70_000] as const;

/** One request: at which edge, by how much the clock of that edge is behind, and whether the client waits for the 202. */
const step = fc.record({
  edge: fc.nat({ max: EDGES - 1 }),
  behindMs: fc.nat({ max: 5 }),
  pad: fc.constantFrom(...PADS),
  waits: fc.boolean(),
});

interface Opened {
  readonly folder: string;
  readonly first: LogAppender;
  /** The ends of the other edges. */
  readonly ports: MessagePort[];
}

async function open(scope: Scope): Promise<Opened> {
  const folder = join(folderIn(scope), 'log');
  mkdirSync(folder);
  const channels = Array.from({ length: EDGES - 1 }, () => new MessageChannel());
  for (const { port2 } of channels) {
    assert.throws(() => joinEmbeddedLog(port2, assert.fail), { name: 'LogUnavailableError' });
  }
  const first = await openEmbeddedLogAppender({
    folder,
    segmentBytes: 1_000_000,
    metrics: null,
    otherEdges: channels.map(({ port1 }) => port1),
    onFatal: assert.fail,
  });
  scope.defer(async () => {
    for (const { port2 } of channels) port2.close();
    await first.close();
  });
  return { folder, first, ports: channels.map(({ port2 }) => port2) };
}

function recordsOf(folder: string): Promise<LogRecord[]> {
  return readAll(openEmbeddedLogReader({ folder }), 0);
}

suite('Edges that share a log', () => {
  test('get one order, in which a request is behind all that were acknowledged before it was received', async () => {
    await using scope = new AsyncDisposableStack();
    const { folder, first, ports } = await open(scope);
    const edges = [first, ...ports.map((port) => joinEmbeddedLog(port, assert.fail))];
    let time = START;
    let count = 0;
    const acknowledged = new Set<string>();
    /** For each request, those that have to be before it. */
    const before = new Map<string, ReadonlySet<string>>();
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 40 }), async (steps) => {
        const waiting: Promise<unknown>[] = [];
        for (const { edge, behindMs, pad, waits } of steps) {
          const traceId = traceIdOf(START, (count += 1));
          before.set(traceId, new Set(acknowledged));
          const request = entry({ traceId, receivedAt: (time += 1) - behindMs, users: [{ pad: 'x'.repeat(pad) }] });
          waiting.push(edges[edge]?.append(request).then(() => acknowledged.add(traceId)) ?? assert.fail());
          if (waits) await waiting.at(-1);
        }
        await Promise.all(waiting);
      }),
      { numRuns: 25 },
    );
    await Promise.all(edges.map((edge) => edge.close()));

    const records = await recordsOf(folder);
    const seen = new Set<string>();
    let newest = 0;
    for (const { traceId, receivedAt } of records) {
      assert.ok(before.get(traceId)?.isSubsetOf(seen), `${traceId} is before one that was acknowledged earlier`);
      assert.ok(receivedAt >= newest, 'received_at went back');
      newest = receivedAt;
      seen.add(traceId);
    }
    assert.deepEqual([records.length, seen.size], [count, count]);
  });

  test('close it with the last of them, whether they have joined it or not', async () => {
    await using scope = new AsyncDisposableStack();
    const { folder, first, ports } = await open(scope);
    const [port, unused] = ports;
    const other = joinEmbeddedLog(port ?? assert.fail(), assert.fail);
    await first.append(entry());
    const closed = first.close();
    // The writer works on for the edges that are still there.
    await other.append(entry());
    unused?.close();
    await Promise.all([closed, other.close()]);
    assert.equal((await recordsOf(folder)).length, 2);
    await assert.rejects(other.append(entry()), { name: 'LogUnavailableError' });
  });
});
