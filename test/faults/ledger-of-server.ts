/** Requests to a running server, one after the other, and what its `GET /ledger` says about them. */

import assert from 'node:assert/strict';
import { eventually, post, read, type TestServer, user } from '../server.ts';

interface LedgerOfServer {
  readonly balanced: boolean;
  readonly missing_records: number;
  readonly lost_records: number;
  readonly warnings: string[];
  readonly totals: { readonly users: { readonly received: number; readonly stored: number } };
}

export function ledgerOf(server: TestServer, key: string): Promise<LedgerOfServer> {
  return read(server, key, '/ledger');
}

/** Each is a request with one user and one event, and gets a 202. Returns their trace ids. */
export async function send(server: TestServer, key: string, count: number, text = ''): Promise<string[]> {
  const traceIds: string[] = [];
  for (let n = 0; n < count; n++) {
    const { status, body } = await post(server, key, { users: [user(`u${n}`, [{ event_name: 'tested', text }])] });
    assert.equal(status, 202);
    traceIds.push((body as { readonly trace_id: string }).trace_id);
  }
  return traceIds;
}

/** Others may be missing. */
export async function storedUsers(server: TestServer, key: string, users: number): Promise<void> {
  await eventually(`${users} users are stored`, async () => {
    return (await ledgerOf(server, key)).totals.users.stored === users;
  });
}

export async function allStored(server: TestServer, key: string, users: number): Promise<void> {
  await eventually(`${users} users are stored, and all is accounted for`, async () => {
    const { balanced, totals } = await ledgerOf(server, key);
    return balanced && totals.users.received === users && totals.users.stored === users;
  });
}
