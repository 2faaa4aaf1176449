/** What a server has stored, read through its API once everything is processed. */

import { metric } from '../edge/fixture.ts';
import { eventually, read, type TestServer } from '../server.ts';

/** The machine may be busy with other tests. */
const PATIENCE_MS = 60_000;

export interface StoredEvent {
  readonly id: string;
  readonly event_name: string;
  readonly timestamp: string;
  readonly profile_id: string;
  readonly properties: Readonly<Record<string, unknown>>;
}

/** In the order of their times, oldest first. */
export async function storedEvents(server: TestServer, name: string): Promise<StoredEvent[]> {
  await eventually(
    'everything is processed',
    async () => {
      const text = JSON.stringify(await read(server, server.key, '/ledger'));
      return !/"pending":[1-9]/.test(text);
    },
    PATIENCE_MS,
  );
  const events: StoredEvent[] = [];
  let cursor: string | null = '';
  while (cursor !== null) {
    const after: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const page: { events: StoredEvent[]; next_cursor: string | null } = await read(
      server,
      server.key,
      `/events?event_name=${name}&limit=500${after}`,
    );
    events.push(...page.events);
    cursor = page.next_cursor;
  }
  return events.toReversed();
}

/** What clients dropped, as the ledger and the metrics count it. */
export async function droppedByClients(server: TestServer): Promise<{ totals: number; hours: number; metric: number }> {
  interface Dropped {
    readonly dropped_by_clients: number;
  }
  const { hours, totals } = await read<{ hours: readonly Dropped[]; totals: Dropped }>(server, server.key, '/ledger');
  return {
    totals: totals.dropped_by_clients,
    hours: hours.reduce((sum, { dropped_by_clients: dropped }) => sum + dropped, 0),
    metric: await metric(server, 'sluice_dropped_by_clients_total'),
  };
}

/** The property `n` of each stored event, in order: one that was stored twice is there twice. */
export async function storedNumbers(server: TestServer, name: string): Promise<number[]> {
  const events = await storedEvents(server, name);
  return events.map(({ properties }) => properties['n'] as number).sort((a, b) => a - b);
}
