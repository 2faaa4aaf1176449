/**
 * A wire between a client and a server, which a test may cut. Cut as a network is: nothing is refused and nothing is reported,
 * connections stay open, new ones are made, and nothing arrives. Once it is fixed, what was under way arrives late, as
 * TCP sends it again. A single message can be lost, too, with the connection: the question or only its response.
 */

import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/**
 * What becomes of a piece from the client: passed on, lost on the way, passed on and the response to it lost, or the same
 * with the client informed long before the server gets it.
 */
export type Fate = 'passes' | 'lost' | 'unanswered' | 'late';

/** Long enough for the client to have come back by another connection. */
const LATE_MS = 1_500;

export interface WireOptions {
  /** Asked at every connection: a server that is started again has another. */
  readonly port: () => number;
  readonly host?: string;
  /** Asked about every piece from the client; all pass unless given. */
  readonly fateOf?: (piece: Buffer) => Fate;
  /** Whether a client whose message was lost sees the connection end (at once), or nothing at all (forever). */
  readonly isClientInformed?: () => boolean;
}

export interface Wire {
  readonly port: number;
  /** Messages that were lost, so that a test sees that the fault did bite. */
  readonly lost: number;
  /** Pieces that arrived late, likewise. */
  readonly delayed: number;
  cut(): void;
  repair(): void;
  close(): Promise<void>;
}

interface Piece {
  readonly to: Socket;
  /** Null: the end of the connection, which is a message like any other. */
  readonly bytes: Buffer | null;
}

export async function openWire(options: WireOptions): Promise<Wire> {
  const { port, host = '127.0.0.1', fateOf = () => 'passes', isClientInformed = () => true } = options;
  const sockets = new Set<Socket>();
  let held: Piece[] = [];
  let isCut = false;
  let lost = 0;
  let delayed = 0;

  const keep = (socket: Socket): void => {
    sockets.add(socket);
    socket.setNoDelay(true);
    // 'close' follows.
    socket.on('error', () => undefined);
    socket.on('close', () => sockets.delete(socket));
  };
  const deliver = ({ to, bytes }: Piece): void => {
    if (bytes === null) to.destroy();
    else if (!to.destroyed) to.write(bytes);
  };
  const pass = (piece: Piece): void => {
    if (!isCut) {
      deliver(piece);
      return;
    }
    delayed += 1;
    held.push(piece);
  };

  const server = createServer((near) => {
    const far = connect(port(), host);
    let isLost = false;
    keep(near);
    keep(far);
    const tell = (): void => {
      if (isClientInformed()) near.resetAndDestroy();
    };
    near.on('data', (bytes: Buffer) => {
      if (isLost) return;
      const fate = fateOf(bytes);
      if (fate !== 'passes') isLost = true;
      if (fate === 'late') {
        tell();
        setTimeout(() => pass({ to: far, bytes }), LATE_MS);
      } else if (fate === 'lost') far.destroy();
      else pass({ to: far, bytes });
    });
    far.on('data', (bytes: Buffer) => {
      if (!isLost) pass({ to: near, bytes });
      // The server has done what it was asked for, and its response is lost.
      else far.destroy();
    });
    near.on('close', () => {
      // Of a connection that is lost, the far end is ended by what was lost.
      if (!isLost) pass({ to: far, bytes: null });
    });
    far.on('close', () => {
      if (!isLost) {
        pass({ to: near, bytes: null });
        return;
      }
      lost += 1;
      tell();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');

  return {
    port: (server.address() as AddressInfo).port,
    get lost() {
      return lost;
    },
    get delayed() {
      return delayed;
    },
    cut: () => {
      isCut = true;
    },
    repair: () => {
      isCut = false;
      const pieces = held;
      held = [];
      for (const piece of pieces) deliver(piece);
    },
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** A wire to what a URL names, and the URL by way of it. */
export async function openWireTo(url: string): Promise<Wire & { readonly url: string }> {
  const target = new URL(url);
  const { port, hostname } = target;
  const wire = await openWire({ port: () => Number(port), host: hostname });
  target.host = `127.0.0.1:${wire.port}`;
  return Object.assign(wire, { url: target.href });
}
