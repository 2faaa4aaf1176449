/**
 * The responder of the calibration: responds to every request with the same bytes, without parsing HTTP, to find out how
 * fast the load generator can go when the server costs next to nothing. A request has ended when what arrived ends as
 * every generated body does, with a brace and a newline; the generator never has two requests on one connection.
 * `node bench/canned.ts PORT`; SIGTERM ends it.
 */

import { createServer } from 'node:net';

const BODY = '{"trace_id":"00000000-0000-4000-8000-000000000000","users_accepted":1,"users_rejected":0,"errors":[]}';
const RESPONSE = Buffer.from(
  'HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n' +
    `Connection: keep-alive\r\nKeep-Alive: timeout=5\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`,
);
const BRACE = 0x7d;
const NEWLINE = 0x0a;

const server = createServer({ noDelay: true }, (socket) => {
  socket.on('data', (chunk) => {
    if (chunk.at(-1) === NEWLINE && chunk.at(-2) === BRACE) socket.write(RESPONSE);
  });
  socket.on('error', () => socket.destroy());
});

server.listen(Number(process.argv[2]), '127.0.0.1');
process.once('SIGTERM', () => process.exit(0));
