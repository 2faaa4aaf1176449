/**
 * A server that takes imports and misbehaves when asked to: responds as Sluice does, keeps every body with its
 * Idempotency-Key, and stores a key once. For what a real server does not do on command.
 */

import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import type { TestContext } from 'node:test';

export interface Received {
  readonly idempotencyKey: string;
  readonly authorization: string;
  readonly body: string;
}

export interface StubResponse {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

export interface IngestStub {
  readonly url: string;
  /** Every request, repeats included, in order of arrival. */
  readonly received: Received[];
  /** What is stored: one body a key. */
  readonly stored: Map<string, string>;
}

/** `misbehave` may respond to a request itself; undefined lets it be taken. */
export async function startIngestStub(
  context: TestContext,
  misbehave: (request: Received, nth: number) => StubResponse | undefined | Promise<StubResponse | undefined> = () =>
    undefined,
): Promise<IngestStub> {
  const received: Received[] = [];
  const stored = new Map<string, string>();
  const reply = async (request: IncomingMessage): Promise<StubResponse> => {
    const one = {
      idempotencyKey: String(request.headers['idempotency-key']),
      authorization: String(request.headers.authorization),
      body: (await buffer(request)).toString('utf8'),
    };
    received.push(one);
    const own = await misbehave(one, received.length);
    if (own !== undefined) return own;
    const { users } = JSON.parse(one.body) as { users: unknown[] };
    if (!stored.has(one.idempotencyKey)) stored.set(one.idempotencyKey, one.body);
    return {
      status: 202,
      body: { trace_id: 'trace', users_accepted: users.length, users_rejected: 0, errors: [] },
    };
  };
  const server = createServer((request, response) => {
    void reply(request).then(({ status, headers = {}, body = {} }) => {
      response.writeHead(status, headers).end(JSON.stringify(body));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, received, stored };
}

/** The users that are stored, in the order of the file. */
export function usersIn(stored: ReadonlyMap<string, string>): { n: number }[] {
  return [...stored.values()]
    .flatMap((body) => (JSON.parse(body) as { users: { n: number }[] }).users)
    .sort((a, b) => a.n - b.n);
}
