/**
 * A gate in front of a real server, which the SDK believes to be the server: it passes requests on as they are, or does to
 * the next ones what the test says. What went through it can be read afterwards.
 */

import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';

/** What happens to one request. */
export type Fault =
  /** Not passed on; the client gets this response. */
  | { readonly status: number; readonly headers?: Readonly<Record<string, string>>; readonly body?: string }
  /** Passed on, but the response takes longer. */
  | { readonly responseDelayMs: number }
  /** Passed on, but the response never arrives. */
  | 'lose the response';

export interface SeenRequest {
  readonly idempotencyKey: string | undefined;
  readonly body: string;
  /** What the client got; 0 if the response was lost. */
  readonly status: number;
}

export interface Gate {
  readonly url: string;
  readonly seen: SeenRequest[];
  /** One for each of the next requests that `rule` lets pass, in order. */
  readonly faults: Fault[];
  /** Decides first; the queue has the next of the others. */
  rule: ((body: string) => Fault | undefined) | undefined;
  close(): Promise<void>;
}

export async function openGate(serverUrl: () => string): Promise<Gate> {
  const seen: SeenRequest[] = [];
  const faults: Fault[] = [];
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = (await buffer(request)).toString('utf8');
    const fault = gate.rule?.(body) ?? faults.shift();
    const idempotencyKey = request.headers['idempotency-key'] as string | undefined;
    const note = (status: number): void => void seen.push({ idempotencyKey, body, status });
    if (typeof fault === 'object' && 'status' in fault) {
      note(fault.status);
      response.writeHead(fault.status, { ...fault.headers }).end(fault.body ?? '');
      return;
    }
    const { authorization = '', 'content-type': type = '' } = request.headers;
    const headers = { authorization, 'content-type': type, 'idempotency-key': idempotencyKey ?? 'none' };
    const passed = await fetch(serverUrl() + request.url, { method: 'POST', headers, body });
    const text = await passed.text();
    const isLost = fault === 'lose the response';
    note(isLost ? 0 : passed.status);
    if (typeof fault === 'object') await setTimeout(fault.responseDelayMs);
    if (isLost) response.destroy();
    else response.writeHead(passed.status, { 'content-type': 'application/json' }).end(text);
  };
  const server = createServer((request, response) => {
    handle(request, response).catch(() => response.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const gate: Gate = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    seen,
    faults,
    rule: undefined,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  return gate;
}
