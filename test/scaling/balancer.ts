/**
 * A small load balancer, as simple as they come: it passes TCP connections on to the servers that were ready when it
 * last asked `/readyz`, in turns, and asks every 200 ms. It never tries again: whatever a server refuses is counted.
 */

import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { readResponse } from '../server.ts';

const ASK_INTERVAL_MS = 200;

export interface Balancer {
  readonly port: number;
  /** Connections that no server took. */
  readonly refused: number;
  /** The ports that are passed connections now. */
  ready(): readonly number[];
  close(): Promise<void>;
}

export async function openBalancer(servers: () => readonly number[]): Promise<Balancer> {
  const sockets = new Set<Socket>();
  let ready: readonly number[] = [];
  let turn = 0;
  let refused = 0;

  const ask = async (): Promise<void> => {
    const ports = servers();
    const responses = await Promise.all(ports.map(isReady));
    ready = ports.filter((_, index) => responses[index]);
  };
  const server = createServer((near) => {
    const port = ready[turn++ % Math.max(1, ready.length)];
    if (port === undefined) {
      refused += 1;
      near.destroy();
      return;
    }
    const far = connect(port, '127.0.0.1');
    let isTaken = false;
    far.once('connect', () => (isTaken = true));
    far.once('close', () => (refused += isTaken ? 0 : 1));
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(one);
      one.setNoDelay(true);
      // 'close' follows.
      one.on('error', () => undefined);
      one.on('close', () => sockets.delete(one));
      one.pipe(other);
      one.on('close', () => other.destroy());
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  await ask();
  const timer = setInterval(() => void ask(), ASK_INTERVAL_MS);
  return {
    port: (server.address() as AddressInfo).port,
    get refused() {
      return refused;
    },
    ready: () => ready,
    close: async () => {
      clearInterval(timer);
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

async function isReady(port: number): Promise<boolean> {
  try {
    return (await readResponse(await fetch(`http://127.0.0.1:${port}/readyz`))).status === 200;
  } catch {
    return false;
  }
}
