/**
 * The server of the benchmark sdk that costs next to nothing and understands every SDK: it reads each request to its end and
 * responds 200 with a body that all of them accept as "delivered". It stores nothing. `node bench/sdk-responder.ts PORT`;
 * SIGTERM ends it.
 */

import { createServer } from 'node:http';

const BODY = '{"success":true,"status":1,"users_accepted":0,"users_rejected":0,"errors":[]}';
const HEADERS = { 'content-type': 'application/json', 'content-length': String(BODY.length) };

const server = createServer((request, response) => {
  request.resume().on('end', () => {
    // Sluice's own status is 202, which the SDK of Sluice expects.
    response.writeHead(request.url === '/ingest/events' ? 202 : 200, HEADERS).end(BODY);
  });
});

server.listen(Number(process.argv[2]), '127.0.0.1');
process.once('SIGTERM', () => process.exit(0));
