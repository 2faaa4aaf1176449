/**
 * A client that sends any bytes and reads the responses, without any opinion on HTTP. Every response of
 * the server has a Content-Length or no body at all, so that is all the reading it knows.
 */

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

export interface RawResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

const RESPONSE_MS = 20_000;
const HEAD_END = Buffer.from('\r\n\r\n');

export class RawClient {
  readonly #socket: Socket;
  readonly #responses: RawResponse[] = [];
  #unread: Buffer = Buffer.alloc(0);
  #wake: () => void = () => {};
  #isClosed = false;
  #error: Error | undefined;
  /** Resolves when the server has closed its side, or the connection is gone. */
  readonly closed: Promise<void>;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk: Buffer) => {
      this.#unread = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk]);
      while (this.#takeResponse());
      this.#wake();
    });
    // A reset is how a connection may end here; what counts are the responses before.
    socket.on('error', (error) => {
      this.#error = error;
    });
    this.closed = new Promise((resolve) => {
      const close = (): void => {
        this.#isClosed = true;
        this.#wake();
        resolve();
      };
      socket.once('end', close);
      socket.once('close', close);
    });
  }

  static async open(port: number): Promise<RawClient> {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    await once(socket, 'connect');
    return new RawClient(socket);
  }

  /** Sends the bytes on a connection of their own and returns all responses until the server closes it. */
  static async responsesTo(port: number, pieces: readonly (string | Uint8Array)[]): Promise<RawResponse[]> {
    const client = await RawClient.open(port);
    for (const piece of pieces) await client.send(piece);
    const responses = await client.rest();
    client.destroy();
    return responses;
  }

  /** Resolves once the operating system has taken the bytes, or the connection is gone. */
  send(bytes: string | Uint8Array): Promise<void> {
    return new Promise((resolve) => {
      this.#socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes, () => resolve());
    });
  }

  /** Says that nothing more will be sent, and continues reading. */
  finish(): void {
    this.#socket.end();
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Such as a reset; undefined if the connection ended in order. */
  get error(): Error | undefined {
    return this.#error;
  }

  /** The next response, in order; undefined if the server closed without one. */
  async next(): Promise<RawResponse | undefined> {
    const deadline = performance.now() + RESPONSE_MS;
    while (this.#responses.length === 0 && !this.#isClosed) {
      if (performance.now() > deadline) throw new Error(`no response within ${RESPONSE_MS} ms`);
      await this.#woken();
    }
    return this.#responses.shift();
  }

  /** The responses that are here already and were not taken yet. */
  take(): RawResponse[] {
    return this.#responses.splice(0);
  }

  /** All responses that are still to come, until the server closes. */
  async rest(): Promise<RawResponse[]> {
    const all: RawResponse[] = [];
    for (let response = await this.next(); response !== undefined; response = await this.next()) all.push(response);
    return all;
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #woken(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, RESPONSE_MS);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #takeResponse(): boolean {
    const headEnd = this.#unread.indexOf(HEAD_END);
    if (headEnd === -1) return false;
    const [statusLine = '', ...lines] = this.#unread.toString('latin1', 0, headEnd).split('\r\n');
    const headers = new Map(
      lines.map((line) => [line.split(':')[0]?.toLowerCase() ?? '', line.replace(/^[^:]*: */, '')]),
    );
    const bodyStart = headEnd + HEAD_END.length;
    const bodyEnd = bodyStart + Number(headers.get('content-length') ?? 0);
    if (this.#unread.length < bodyEnd) return false;
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(statusLine)?.[1]);
    this.#responses.push({ status, headers, body: this.#unread.toString('utf8', bodyStart, bodyEnd) });
    this.#unread = this.#unread.subarray(bodyEnd);
    return true;
  }
}

/** Headers of a good request but for its length. */
export function headOf(
  key: string,
  more: readonly string[] = [],
  requestLine = 'POST /ingest/events HTTP/1.1',
): string {
  const lines = [
    requestLine,
    'Host: localhost',
    `Authorization: Bearer ${key}`,
    'Content-Type: application/json',
    ...more,
  ];
  return `${lines.join('\r\n')}\r\n\r\n`;
}

export function requestOf(key: string, body: string | Uint8Array, more: readonly string[] = []): Buffer {
  const bytes = Buffer.from(body);
  return Buffer.concat([Buffer.from(headOf(key, [`Content-Length: ${bytes.length}`, ...more])), bytes]);
}

export function chunkOf(bytes: string | Uint8Array): Buffer {
  const data = Buffer.from(bytes);
  return Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]);
}

export const LAST_CHUNK = Buffer.from('0\r\n\r\n');
