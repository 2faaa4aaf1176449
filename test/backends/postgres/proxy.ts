/**
 * Stands between a client and PostgreSQL, and can fall silent: connections stay open, new ones are taken, and nothing is
 * forwarded, as with a network that swallows packets. A server that is merely down responds at once, which is easier.
 */

import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export interface Proxy {
  /** The URL that it was made for, by way of the proxy. */
  readonly url: string;
  fallSilent(): void;
  /** What was held back in the meantime continues. */
  forward(): void;
  close(): Promise<void>;
}

export async function openProxy(url: string): Promise<Proxy> {
  const target = new URL(url);
  const sockets = new Set<Socket>();
  let isSilent = false;
  const keep = (socket: Socket): Socket => {
    sockets.add(socket);
    if (isSilent) socket.pause();
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => socket.destroy());
    return socket;
  };
  const server = createServer((near) => {
    const far = connect(Number(target.port), target.hostname);
    for (const [one, other] of [
      [keep(near), far],
      [keep(far), near],
    ] as const) {
      one.on('data', (bytes) => {
        if (!other.destroyed) other.write(bytes);
        if (isSilent) one.pause();
      });
      one.on('close', () => other.destroy());
    }
    if (isSilent) for (const socket of [near, far]) socket.pause();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const own = new URL(url);
  own.host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url: own.href,
    fallSilent: () => {
      isSilent = true;
      for (const socket of sockets) socket.pause();
    },
    forward: () => {
      isSilent = false;
      for (const socket of sockets) socket.resume();
    },
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
