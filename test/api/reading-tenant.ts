/** A tenant of its own on a real server, for tests that send something and read it back. */

import assert from 'node:assert/strict';
import { ask, makeKey } from '../edge/fixture.ts';
import { type HttpResponse, eventually, post, type TestServer } from '../server.ts';

/** What these tests look at in responses. */
export interface Profile {
  readonly id: string;
  readonly merged_ids: string[];
  readonly identifiers: Record<string, string[]>;
  readonly user_properties: Record<string, unknown>;
  readonly event_count: number;
}
export interface Event {
  readonly id: string;
  readonly event_name: string;
  readonly profile_id: string | null;
  readonly trace_id: string;
}
export interface EventPage {
  readonly events: Event[];
  readonly next_cursor: string | null;
}

let accounts = 0;

/** Each test has a tenant of its own on the shared server. */
export async function tenant(server: TestServer) {
  const { key } = await makeKey(server.dataFolder, { account: `reading ${++accounts}` });
  const authorization = `Bearer ${key}`;
  const get = (path: string): Promise<HttpResponse> => ask(server, path, { headers: { authorization } });
  const act = (method: string, path: string, body?: object): Promise<HttpResponse> =>
    ask(server, path, {
      method,
      headers: { authorization, ...(body !== undefined && { 'content-type': 'application/json' }) },
      body: body === undefined ? null : JSON.stringify(body),
    });
  /** Sends, and waits until it can be read back. */
  const send = async (body: unknown): Promise<string> => {
    const response = await post(server, key, body);
    const traceId = response.headers.get('x-trace-id') ?? '';
    await processed(traceId);
    return traceId;
  };
  const processed = (traceId: string): Promise<unknown> =>
    eventually('the request is processed', async () => {
      const { status, body } = await get(`/traces/${traceId}`);
      assert.equal(status, 200);
      return (body as { status: string }).status === 'processed';
    });
  return { key, get, act, send };
}

export function user(identifiers: object, events: object[] = [{ event_name: 'tested' }], more: object = {}): object {
  return { users: [{ identifiers, events, ...more }] };
}
