/**
 * One keep-alive connection of the load generator, on a bare socket: sends bytes that were made beforehand and reads
 * just enough of the response (status and Content-Length) to know when it ends. At most one request is under way.
 * Responses without a Content-Length are not understood and end the process, loudly. A connection that the server closes
 * is opened again.
 */

import { connect, type Socket } from 'node:net';

const READ_BYTES = 16 * 1024;
const RECONNECT_MILLISECONDS_MIN = 10;
const HEAD_END = Buffer.from('\r\n\r\n');
const LENGTH = /\r\ncontent-length: *(\d+)/i;
const CLOSE = /\r\nconnection: *close/i;

interface ConnectionEvents {
  /** A response is complete. Should it have come early, the request has been sent to its end too, or was cut off. */
  responded(connection: Connection, status: number): void;
  /** The connection ended, in the midst of a request or not. It is being opened again. */
  lost(connection: Connection, inRequest: boolean): void;
  opened(connection: Connection): void;
}

export class Connection {
  /** Open, and no request is under way. */
  free = false;
  /** When the request under way was due, and its users; kept here so that no object is made for a request. */
  due = 0;
  users = 0;
  inRequest = false;
  private socket: Socket;
  private closing = false;
  /** The status of a response that is counted once the rest of its request is sent or the connection ends; else 0. */
  private earlyStatus = 0;
  private pending: Buffer | null = null;
  private status = 0;
  private bodyLeft = 0;
  private lastResponse = false;
  private readonly port: number;
  private readonly restMilliseconds: number;
  private readonly events: ConnectionEvents;
  private readonly readBuffer = Buffer.allocUnsafe(READ_BYTES);

  constructor(port: number, restMilliseconds: number, events: ConnectionEvents) {
    this.port = port;
    this.restMilliseconds = Math.max(RECONNECT_MILLISECONDS_MIN, restMilliseconds);
    this.events = events;
    this.socket = this.open();
  }

  send(request: Buffer, users: number, due: number): void {
    this.free = false;
    this.inRequest = true;
    this.users = users;
    this.due = due;
    this.socket.write(request);
  }

  close(): void {
    this.closing = true;
    this.socket.destroy();
  }

  private open(): Socket {
    this.pending = null;
    this.bodyLeft = 0;
    this.lastResponse = false;
    const socket = connect({
      port: this.port,
      host: '127.0.0.1',
      noDelay: true,
      onread: {
        buffer: this.readBuffer,
        callback: (bytes, buffer) => {
          this.read(buffer as Buffer, bytes);
          return true;
        },
      },
    });
    socket.on('connect', () => {
      this.free = true;
      this.events.opened(this);
    });
    // 'close' always follows, and is where the loss is counted.
    socket.on('error', () => undefined);
    socket.on('close', () => this.reopen());
    return socket;
  }

  private reopen(): void {
    if (this.closing) return;
    const early = this.earlyStatus;
    const { inRequest } = this;
    this.free = false;
    this.inRequest = false;
    this.earlyStatus = 0;
    if (early !== 0) this.events.responded(this, early);
    this.events.lost(this, inRequest && early === 0);
    setTimeout(() => {
      if (!this.closing) this.socket = this.open();
    }, this.restMilliseconds);
  }

  private read(buffer: Buffer, bytes: number): void {
    let at = 0;
    if (this.bodyLeft > 0) {
      at = Math.min(bytes, this.bodyLeft);
      this.bodyLeft -= at;
      if (this.bodyLeft === 0) this.complete();
    }
    if (at >= bytes) return;
    // The read buffer is used again for the next read, so what is kept for later must be copied.
    const fresh = buffer.subarray(at, bytes);
    const head = this.pending === null ? fresh : Buffer.concat([this.pending, fresh]);
    const end = head.indexOf(HEAD_END);
    if (end < 0) {
      this.pending = this.pending === null ? Buffer.from(fresh) : head;
      return;
    }
    this.pending = null;
    const text = head.toString('latin1', 0, end);
    const length = LENGTH.exec(text);
    if (!text.startsWith('HTTP/1.1 ') || length === null) throw new Error(`not understood: ${text}`);
    this.status = Number(text.slice(9, 12));
    this.lastResponse = CLOSE.test(text);
    this.bodyLeft = Number(length[1]) - (head.length - end - HEAD_END.length);
    if (this.bodyLeft < 0) throw new Error('a response to a request that was not sent');
    if (this.bodyLeft === 0) this.complete();
  }

  private complete(): void {
    if (this.lastResponse) {
      this.earlyStatus = this.status;
      this.socket.destroy();
    } else if (this.socket.writableNeedDrain) {
      // An early refusal: the rest of the body is still on its way, and is sent unless the server hangs up.
      this.earlyStatus = this.status;
      this.socket.once('drain', () => this.finish());
    } else {
      this.finish();
    }
  }

  private finish(): void {
    this.inRequest = false;
    this.earlyStatus = 0;
    this.free = true;
    this.events.responded(this, this.status);
  }
}
