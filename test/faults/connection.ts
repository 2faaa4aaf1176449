/**
 * A keep-alive HTTP connection over a bare socket, for tests that count every response: it never retries, never reuses a
 * broken connection, and says whether a response came or the connection ended without one. One request at a time.
 * It understands what Sluice sends (Content-Length, no chunks) and nothing more.
 */

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

export interface RawResponse {
  readonly status: number;
  readonly head: string;
  readonly body: string;
}

/** The connection ended before the response was complete: whether the request was taken is not known. */
export class ConnectionLostError extends Error {
  override readonly name = 'ConnectionLostError';
}

const NOTHING = Buffer.alloc(0);
const END_OF_HEAD = '\r\n\r\n';

export class Connection {
  readonly socket: Socket;
  #received: Buffer = NOTHING;
  #waiting: PromiseWithResolvers<RawResponse> | undefined;
  #lost = false;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.setNoDelay(true);
    socket.on('data', (chunk: Buffer) => this.#hear(chunk));
    // The reason does not matter, 'close' follows.
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.#lost = true;
      this.#waiting?.reject(new ConnectionLostError('the connection ended before the answer'));
    });
  }

  /** Rejects when nothing listens. */
  static async open(port: number): Promise<Connection> {
    const socket = connect({ host: '127.0.0.1', port });
    await once(socket, 'connect');
    return new Connection(socket);
  }

  request(
    method: string,
    path: string,
    headers: Readonly<Record<string, string>> = {},
    body = '',
  ): Promise<RawResponse> {
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    const length = `Content-Length: ${Buffer.byteLength(body)}\r\n`;
    return this.send(`${method} ${path} HTTP/1.1\r\nHost: test\r\n${length}${lines.join('')}\r\n${body}`);
  }

  /** Events, as JSON; with an Idempotency-Key unless it is null. */
  ingest(key: string, idempotencyKey: string | null, body: string): Promise<RawResponse> {
    const headers = {
      Authorization: `Bearer ${key}`,
      'Content-Type': 'application/json',
      ...(idempotencyKey !== null && { 'Idempotency-Key': idempotencyKey }),
    };
    return this.request('POST', '/ingest/events', headers, body);
  }

  /** Sends bytes as they are and waits for one response. */
  send(bytes: string): Promise<RawResponse> {
    if (this.#lost) return Promise.reject(new ConnectionLostError('the connection has ended'));
    this.#waiting = Promise.withResolvers<RawResponse>();
    this.socket.write(bytes);
    return this.#waiting.promise;
  }

  close(): void {
    this.socket.destroy();
  }

  #hear(chunk: Buffer): void {
    this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    const headEnd = this.#received.indexOf(END_OF_HEAD);
    if (headEnd === -1) return;
    const head = this.#received.toString('latin1', 0, headEnd);
    const bodyStart = headEnd + END_OF_HEAD.length;
    const bodyEnd = bodyStart + Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
    if (this.#received.length < bodyEnd) return;
    const response = {
      status: Number(head.slice('HTTP/1.1 '.length, 'HTTP/1.1 200'.length)),
      head,
      body: this.#received.toString('utf8', bodyStart, bodyEnd),
    };
    this.#received = NOTHING;
    this.#waiting?.resolve(response);
    this.#waiting = undefined;
  }
}
