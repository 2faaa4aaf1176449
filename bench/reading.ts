/**
 * The runner's own calls to a server that is measured: metrics, the books, profiles and timelines, one at a time on one
 * connection that stays open. Anything but a 200 is an error, but for a person who is not there.
 */

import { Agent, get } from 'node:http';
import type { Server } from './servers.ts';

/** What a page of a timeline holds unless told otherwise. */
export const PAGE_EVENTS = 50;

export interface Books {
  readonly received: number;
  readonly stored: number;
  readonly pending: number;
  readonly difference: number;
}

export interface Profile {
  readonly id: string;
  readonly merged_ids: readonly string[];
  readonly event_count: number;
}

export class Reader {
  private readonly server: Server;
  private readonly agent = new Agent({ keepAlive: true, maxSockets: 1 });

  constructor(server: Server) {
    this.server = server;
  }

  async metrics(): Promise<ReadonlyMap<string, number>> {
    const lines = (await this.text('/metrics')).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    return new Map(
      lines.map((line) => {
        const space = line.lastIndexOf(' ');
        return [line.slice(0, space), Number(line.slice(space + 1))];
      }),
    );
  }

  /** How far the processor is; cheaper for the server than the books, and a moment ahead of them. */
  async progress(): Promise<{ readonly isBehind: boolean; readonly processed: number }> {
    const metrics = await this.metrics();
    const processed = metrics.get('sluice_processed_records_total') ?? 0;
    return { isBehind: processed < (metrics.get('sluice_log_entries_total') ?? 0), processed };
  }

  /** Of events, over all hours. */
  async books(): Promise<Books> {
    const { totals } = JSON.parse(await this.text('/ledger')) as { totals: { events: Books } };
    return totals.events;
  }

  /** Undefined for somebody who is not known. */
  async profile(who: { readonly user_id: string } | { readonly email: string }): Promise<Profile | undefined> {
    const path = `/profiles?${new URLSearchParams({ ...who }).toString()}`;
    const { status, body } = await this.ask(path);
    return status === 404 ? undefined : (JSON.parse(expected200(path, status, body)) as Profile);
  }

  /** The newest page. */
  async timeline(id: string): Promise<{ readonly events: readonly unknown[] }> {
    return JSON.parse(await this.text(`/profiles/${id}/events`)) as { events: unknown[] };
  }

  /** Events by the counts of `GET /events/counts`, over all days since `from`. */
  async countedEvents(from: number): Promise<number> {
    const query = new URLSearchParams({
      interval: 'hour',
      from: new Date(from).toISOString(),
      to: new Date(Date.now() + 60_000).toISOString(),
    });
    const { buckets } = JSON.parse(await this.text(`/events/counts?${query.toString()}`)) as {
      buckets: { events: number }[];
    };
    return buckets.reduce((sum, { events }) => sum + events, 0);
  }

  close(): void {
    this.agent.destroy();
  }

  private async text(path: string): Promise<string> {
    const { status, body } = await this.ask(path);
    return expected200(path, status, body);
  }

  private async ask(path: string): Promise<{ status: number; body: string }> {
    const { port, key } = this.server;
    return new Promise((resolve, reject) => {
      const headers = { Authorization: `Bearer ${key}` };
      const request = get({ port, host: '127.0.0.1', path, headers, agent: this.agent }, (response) => {
        let body = '';
        response.setEncoding('utf8').on('data', (part: string) => {
          body += part;
        });
        response.on('error', reject);
        response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
      });
      request.on('error', reject);
    });
  }
}

function expected200(path: string, status: number, body: string): string {
  if (status !== 200) throw new Error(`GET ${path.replace(/\?.*/, '')} was answered ${status}`);
  return body;
}
